"""Claims the name of another plugin."""

from bub import hookimpl


class RivalPlugin:
    """Is not loaded: the distribution that comes first by name has the name."""

    @hookimpl.run_model
    def run_model(self) -> str:
        return "I am not echo."

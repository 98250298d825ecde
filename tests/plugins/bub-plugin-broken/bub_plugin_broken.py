"""Cannot be imported: the backend that it needs is not installed."""

from importlib import import_module

from bub import hookimpl

BACKEND = import_module("bub_plugin_broken_backend")


class BrokenPlugin:
    """Would do something if it could be imported."""

    @hookimpl.resolve_session
    def resolve_session(self) -> str:
        return BACKEND.__name__

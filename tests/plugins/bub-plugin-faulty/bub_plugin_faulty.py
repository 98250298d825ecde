"""Raises in its constructor, after it registered a plugin of its own."""

from bub import BubFramework, hookimpl


class Helper:
    """Must be gone when the plugin that registered it could not be made."""

    @hookimpl(tryfirst=True).resolve_session
    def resolve_session(self) -> str:
        return "taken over by a plugin that is half there"


class FaultyPlugin:
    """Cannot be made."""

    def __init__(self, framework: BubFramework) -> None:
        framework.register(Helper(), name="faulty-helper")
        raise RuntimeError("the account has no credit left")

"""bub: a strictly typed, Protocol-driven hook system and agent runtime.

This module hands on the public names and imports nothing until one is asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bub.envelope import Envelope as Envelope
    from bub.envelope import MediaItem as MediaItem
    from bub.errors import BubError as BubError
    from bub.framework.agent_plugins import AgentPlugins as AgentPlugins
    from bub.framework.framework import BubFramework as BubFramework
    from bub.hooks.markers import hookimpl as hookimpl
    from bub.turn import StateKey as StateKey
    from bub.turn import TurnResult as TurnResult
    from bub.turn import TurnState as TurnState
else:
    _HOMES = {
        "AgentPlugins": "bub.framework.agent_plugins",
        "BubError": "bub.errors",
        "BubFramework": "bub.framework.framework",
        "Envelope": "bub.envelope",
        "MediaItem": "bub.envelope",
        "StateKey": "bub.turn",
        "TurnResult": "bub.turn",
        "TurnState": "bub.turn",
        "hookimpl": "bub.hooks.markers",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *_HOMES})


__all__ = [
    "AgentPlugins",
    "BubError",
    "BubFramework",
    "Envelope",
    "MediaItem",
    "StateKey",
    "TurnResult",
    "TurnState",
    "hookimpl",
]

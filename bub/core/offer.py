"""What a step offers to its model: the tools by the name that the model sees, ready to be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bub.core.agent_checks import checked_tool
from bub.core.tools import Tool, by_model_name
from bub.messages import republic


class Offer(NamedTuple):
    """Tools as a model gets them.

    Attributes:
        tools: The tools.
        by_name: The tools by the name that the model sees.
        names: Their own names.
        sent: What is sent of them.
    """

    tools: tuple[Tool, ...]
    by_name: Mapping[str, Tool]
    names: tuple[str, ...]
    sent: tuple[republic.Tool, ...]


class Offers:
    """Makes offers; one that is the same as the last is not made again."""

    def __init__(self) -> None:
        self._last = Offer((), {}, (), ())

    def of(self, tools: Sequence[Tool]) -> Offer:
        """The offer of these tools.

        Raises:
            ConfigError: One is none. (A `ValueError`.)
            ToolNameError: A model could not tell two of them apart. (A `ValueError`.)
        """
        listed = tuple(tools)
        if self._last.tools != listed:
            for place, tool in enumerate(listed):
                checked_tool(tool, "prepare_tools()", place)
            by_name = by_model_name(listed)
            sent = tuple(republic.Tool(name, tool.description, tool.parameters) for name, tool in by_name.items())
            self._last = Offer(listed, by_name, tuple(tool.name for tool in listed), sent)
        return self._last

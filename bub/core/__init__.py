"""The agent kernel: it knows tools, tapes and events, and no hook, channel or setting.

The names below are handed on from the files that define them, each at the first look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bub.bus import EventBus as EventBus
    from bub.core.agent import Agent as Agent
    from bub.core.events import AgentEvent as AgentEvent
    from bub.core.events import ChatFinished as ChatFinished
    from bub.core.events import CommandFinished as CommandFinished
    from bub.core.events import LLMCallDecision as LLMCallDecision
    from bub.core.events import LLMCallFinished as LLMCallFinished
    from bub.core.events import LLMCallRequest as LLMCallRequest
    from bub.core.events import LLMCallResult as LLMCallResult
    from bub.core.events import LLMCallStarted as LLMCallStarted
    from bub.core.events import MessagesPending as MessagesPending
    from bub.core.events import RunFinished as RunFinished
    from bub.core.events import RunStarted as RunStarted
    from bub.core.events import StepFinished as StepFinished
    from bub.core.events import StepStarted as StepStarted
    from bub.core.events import TapeEvent as TapeEvent
    from bub.core.events import ToolCall as ToolCall
    from bub.core.events import ToolCallDecision as ToolCallDecision
    from bub.core.events import ToolCallFinished as ToolCallFinished
    from bub.core.events import ToolCallResult as ToolCallResult
    from bub.core.events import ToolCallStarted as ToolCallStarted
    from bub.core.recorder import TapeRecorder as TapeRecorder
    from bub.core.toolmaking import tool as tool
    from bub.core.tools import FunctionTool as FunctionTool
    from bub.core.tools import Tool as Tool
    from bub.core.tools import ToolContext as ToolContext
    from bub.tape.tape import Tape as Tape
else:
    _FROM = {
        "EventBus": "bub.bus",
        "Agent": "bub.core.agent",
        "AgentEvent": "bub.core.events",
        "ChatFinished": "bub.core.events",
        "CommandFinished": "bub.core.events",
        "LLMCallDecision": "bub.core.events",
        "LLMCallFinished": "bub.core.events",
        "LLMCallRequest": "bub.core.events",
        "LLMCallResult": "bub.core.events",
        "LLMCallStarted": "bub.core.events",
        "MessagesPending": "bub.core.events",
        "RunFinished": "bub.core.events",
        "RunStarted": "bub.core.events",
        "StepFinished": "bub.core.events",
        "StepStarted": "bub.core.events",
        "TapeEvent": "bub.core.events",
        "ToolCall": "bub.core.events",
        "ToolCallDecision": "bub.core.events",
        "ToolCallFinished": "bub.core.events",
        "ToolCallResult": "bub.core.events",
        "ToolCallStarted": "bub.core.events",
        "TapeRecorder": "bub.core.recorder",
        "tool": "bub.core.toolmaking",
        "FunctionTool": "bub.core.tools",
        "Tool": "bub.core.tools",
        "ToolContext": "bub.core.tools",
        "Tape": "bub.tape.tape",
    }

    def __getattr__(name):
        if name not in _FROM:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_FROM[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *_FROM})


__all__ = [
    "Agent",
    "AgentEvent",
    "ChatFinished",
    "CommandFinished",
    "EventBus",
    "FunctionTool",
    "LLMCallDecision",
    "LLMCallFinished",
    "LLMCallRequest",
    "LLMCallResult",
    "LLMCallStarted",
    "MessagesPending",
    "RunFinished",
    "RunStarted",
    "StepFinished",
    "StepStarted",
    "Tape",
    "TapeEvent",
    "TapeRecorder",
    "Tool",
    "ToolCall",
    "ToolCallDecision",
    "ToolCallFinished",
    "ToolCallResult",
    "ToolCallStarted",
    "ToolContext",
    "tool",
]

"""Types to try: for each type of a parameter, and for each hook's result."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Annotation(NamedTuple):
    """Types to try in the place of a parameter's type.

    Attributes:
        wrong: One that takes nothing of what the hook passes; empty where there is none.
        wider: One that takes more.
        narrower: One that takes only some of it; empty where there is none.
    """

    wrong: str
    wider: str
    narrower: str = ""


class Sample(NamedTuple):
    """Types to try in the place of a hook's result.

    Attributes:
        narrower: What an implementation may return as well.
        wrong: What it may not return.
        generators: What a generator function may be declared to return; only for a hook that takes one.
    """

    narrower: tuple[str, ...]
    wrong: tuple[str, ...]
    generators: tuple[str, ...] = ()


ANNOTATIONS: Final[Mapping[str, Annotation]] = {
    "Any": Annotation("", "object"),
    "Envelope": Annotation("str", "Envelope | str", "Mail"),
    "Envelope | None": Annotation("str", "object", "Envelope"),
    "Exception": Annotation("str", "BaseException", "ValueError"),
    "LLMCallRequest": Annotation("str", "LLMCallRequest | None"),
    "LLMCallResult": Annotation("str", "LLMCallResult | None"),
    "LegacyPrompt": Annotation("int", "str | list[dict[str, Any]] | None", "str"),
    "LegacyPrompt | None": Annotation("int", "object", "LegacyPrompt"),
    "MessageHandler": Annotation("str", "Callable[[Envelope], Awaitable[None]]"),
    "Path": Annotation("str", "PurePath", "Folder"),
    "Path | None": Annotation("str", "PurePath | None", "Path"),
    "StreamState": Annotation("dict[str, Any]", "StreamState | None"),
    "Tape": Annotation("str", "Named"),
    "ToolCall": Annotation("str", "ToolCall | None"),
    "ToolCallResult": Annotation("str", "object"),
    "TurnSnapshot": Annotation("bool", "TurnSnapshot | None"),
    "TurnState": Annotation("str", "Mapping[str, Any]", "Counts"),
    "dict[str, Any]": Annotation("list[str]", "Mapping[str, Any]", "Counts"),
    "str": Annotation("int", "str | bytes", "Literal['cli']"),
}

SAMPLES: Final[Mapping[str, Sample]] = {
    "resolve_session": Sample(("str", "None", "Literal['cli']"), ("int", "Envelope")),
    "load_state": Sample(("dict[str, Any]", "dict[str, int]", "Counts | None"), ("str", "list[tuple[str, Any]]")),
    "build_prompt": Sample(
        ("str", "list[str]", "list[UserContent]", "list[dict[str, Any]]", "list[republic.Image] | None"),
        ("int", "list[int]", "Envelope"),
    ),
    "run_model": Sample(("str", "None"), ("int", "list[str]")),
    "run_model_stream": Sample(
        ("EventStream", "AsyncStreamEvents", "AsyncIterator[TextDelta]", "AsyncGenerator[StreamEvent, None] | None"),
        ("str", "AsyncIterator[str]", "list[TextDelta]"),
        ("AsyncIterator[TextDelta]", "AsyncGenerator[StreamEvent, None]"),
    ),
    "continue_prompt": Sample(("str", "None"), ("bool", "list[str]")),
    "save_state": Sample((), ("bool", "TurnState")),
    "render_outbound": Sample(
        ("list[Envelope]", "list[Mail]", "tuple[Envelope, ...]", "list[Envelope] | None"),
        ("Envelope", "str", "list[str]"),
    ),
    "dispatch_outbound": Sample(("bool", "None", "Literal[True]"), ("str", "Envelope")),
    "register_cli_commands": Sample((), ("bool", "list[str]")),
    "onboard_config": Sample(("dict[str, Any]", "dict[str, str]", "Counts | None"), ("str", "list[str]")),
    "provide_model_options": Sample(("ModelOptions", "None"), ("list[str]", "str")),
    "provide_environment": Sample(("Environment", "Box", "Box | None"), ("str", "Path")),
    "on_error": Sample((), ("bool", "Exception")),
    "system_prompt": Sample(("str", "None"), ("int", "list[str]")),
    "provide_tape_store": Sample(
        ("TapeStore", "AsyncTapeStore", "MemoryStore", "AsyncMemoryStore | None"),
        ("str", "Iterator[str]", "AbstractContextManager[TapeStore]"),
        ("Iterator[MemoryStore]", "Generator[TapeStore, None, None]", "AsyncIterator[AsyncMemoryStore]"),
    ),
    "provide_lifespan": Sample(
        ("Iterator[None]", "AsyncIterator[None]", "None"),
        ("bool", "Iterator[int]", "AbstractAsyncContextManager[None]"),
        ("Iterator[None]", "Generator[None, None, None]", "AsyncIterator[None]", "AsyncGenerator[None, None]"),
    ),
    "provide_tape_sidecar": Sample(("TapeSidecar", "Notes", "None"), ("str", "list[TapeSidecar]")),
    "provide_channels": Sample(("list[Channel]", "list[Room]", "tuple[Channel, ...] | None"), ("Channel", "list[str]")),
    "build_tape_context": Sample(("TapeContext", "None"), ("str", "Tape")),
    "admit_message": Sample(("AdmitDecision", "None"), ("str", "bool")),
    "provide_steering_inbox": Sample(
        ("SteeringInbox", "Inbox", "Inbox | None"),
        ("str", "Iterator[str]", "AbstractContextManager[SteeringInbox]"),
        ("Iterator[SteeringInbox]", "Generator[Inbox, None, None]", "AsyncIterator[Inbox]"),
    ),
    "provide_tools": Sample(("list[Tool]", "tuple[Tool, ...]", "None"), ("Tool", "list[str]")),
    "before_llm_call": Sample(("LLMCallRequest", "LLMCallDecision | None", "None"), ("str", "list[republic.Message]")),
    "after_llm_call": Sample((), ("bool", "LLMCallResult")),
    "before_tool_call": Sample(("ToolCallDecision", "None"), ("bool", "ToolCall")),
    "after_tool_call": Sample((), ("bool", "ToolCallResult")),
}

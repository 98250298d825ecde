"""`bub run` and `bub hooks` in this process: what they print, and how they exit."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
import typer
import typer.main

from bub.builtin.commands import Commands
from bub.core.agent import Agent
from bub.core.toolmaking import tool
from bub.envelope import Envelope
from bub.errors import ConfigError, ModelError
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.streaming import StreamFailed, TextDelta
from bub.turn import NO_MODEL_REPLY, WORKSPACE, TurnState
from tests.doubles.turns import Plugin, answering, framework, plugin


class Ended(NamedTuple):
    """How a command ended."""

    code: object
    out: str
    said: str


class Run(Protocol):
    def __call__(self, made: BubFramework, *arguments: str) -> Ended: ...


class CommandsOnly:
    def __init__(self, made: BubFramework) -> None:
        self._commands = Commands(made)

    @hookimpl.register_cli_commands
    def register_cli_commands(self, app: typer.Typer) -> None:
        self._commands.add_to(app)


@pytest.fixture
def bub(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(made: BubFramework, *arguments: str) -> Ended:
        if "commands" not in made.plugin_status:
            made.register(CommandsOnly(made), name="commands")
        with pytest.raises(SystemExit) as ended:
            typer.main.get_command(made.create_cli_app()).main(list(arguments), prog_name="bub")
        written = capsys.readouterr()
        return Ended(ended.value.code, written.out, written.err)

    return run


def raising(error: BaseException) -> Callable[..., None]:
    def implementation() -> None:
        raise error

    return implementation


def rendering(*outbounds: Envelope) -> Plugin:
    return plugin(render_outbound=lambda: list(outbounds))


@tool
async def greet(name: str) -> str:
    """Greet."""
    return f"Hello, {name}!"


def test_the_reply_is_printed(bub: Run) -> None:
    assert bub(framework(answering("hello")), "run", "hi") == (0, "hello\n", "")


def test_every_message_is_printed(bub: Run) -> None:
    made = framework(answering(), rendering(Envelope(content="one\ntwo"), Envelope(content="")))
    assert bub(made, "run", "hi") == (0, "one\ntwo\n\n", "")


def test_the_message_as_the_options_make_it(bub: Run) -> None:
    seen: list[Envelope] = []

    def load_state(message: Envelope) -> None:
        seen.append(message)

    made = framework(answering(), plugin(load_state=load_state))
    bub(made, "run", "hi")
    bub(made, "run", "hi", "--channel=a", "--chat-id=b", "--sender-id=c", "--session-id=d")
    assert seen == [
        Envelope(content="hi", channel="cli", chat_id="local", sender_id="human"),
        Envelope(content="hi", channel="a", chat_id="b", sender_id="c", session_id="d"),
    ]


def test_the_workspace(bub: Run, tmp_path: Path) -> None:
    seen: list[Path] = []

    def build_prompt(state: TurnState) -> None:
        seen.append(WORKSPACE.require(state))

    made = framework(answering(), plugin(build_prompt=build_prompt))
    bub(made, "run", "hi")
    bub(made, "run", "hi", "-w", str(tmp_path / "." / "..") + f"/{tmp_path.name}")
    assert seen == [Path.cwd(), tmp_path.resolve()]


def test_a_workspace_that_is_a_file(bub: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    line = f"bub: expected an existing folder, got {str(file)!r} - --workspace\n"
    assert bub(framework(answering()), "run", "hi", "-w", str(file)) == (2, "", line)


# ----------------------------------------------------------------------------------------------------- failures


def test_a_failing_turn_is_told_in_one_line(bub: Run) -> None:
    made = framework(plugin(run_model=raising(ValueError("one\n  two"))))
    code, out, said = bub(made, "run", "hi")
    assert (code, out, said.count("\n")) == (1, "", 1)
    assert said.startswith("bub: the turn failed: ValueError: one two (tests/builtin/test_commands.py:")
    assert said.endswith("). --debug shows the traceback.\n")


@pytest.mark.parametrize("error", [ModelError("openai:m refused\n the key"), ConfigError("openai:m refused the key")])
def test_an_error_of_the_model_or_of_a_setting_says_all_there_is_to_know(bub: Run, error: Exception) -> None:
    made = framework(plugin(run_model=raising(error)))
    assert bub(made, "run", "hi") == (1, "", "bub: openai:m refused the key\n")


def test_what_else_failed_beside_the_model_is_told_too(bub: Run) -> None:
    made = framework(plugin(run_model=raising(ModelError("down"))), plugin(save_state=raising(OSError("second"))))
    said = bub(made, "run", "hi").said
    assert said.startswith("bub: the turn failed: ModelError: down (")
    assert "save_state failed too: OSError: second" in said


def test_the_line_shows_where_in_the_plugin_it_happened(bub: Run) -> None:
    def run_model() -> str:
        return str(json.loads("{"))

    said = bub(framework(plugin(run_model=run_model)), "run", "hi").said
    assert f"(tests/builtin/test_commands.py:{run_model.__code__.co_firstlineno + 1})" in said


def test_what_else_failed_is_in_the_line_too(bub: Run) -> None:
    made = framework(plugin(run_model=raising(ValueError("first"))), plugin(save_state=raising(OSError("second"))))
    said = bub(made, "run", "hi").said
    assert said.count("\n") == 1
    assert "ValueError: first" in said
    assert "save_state failed too: OSError: second" in said


def test_several_errors_are_all_told(bub: Run) -> None:
    made = framework(answering(), *(plugin(save_state=raising(OSError(text))) for text in ("one", "two")))
    said = bub(made, "run", "hi").said
    assert said.count("\n") == 1
    assert "OSError: one" in said
    assert "OSError: two" in said


def test_debug_prints_the_traceback_before_the_line(bub: Run) -> None:
    made = framework(plugin(run_model=raising(ValueError("mine"))))
    code, out, said = bub(made, "run", "hi", "--debug")
    lines = said.splitlines()
    assert (code, out, lines[0]) == (1, "", "Traceback (most recent call last):")
    assert lines[-2] == "ValueError: mine"
    assert lines[-1].startswith("bub: the turn failed: ValueError: mine (")
    assert "--debug" not in lines[-1]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_reply_is_printed_also_when_cleaning_up_fails(bub: Run, as_json: bool) -> None:
    async def provide_lifespan() -> AsyncIterator[None]:
        yield
        raise OSError("cannot clean up")

    made = framework(answering("hello"), plugin(provide_lifespan=provide_lifespan))
    code, out, said = bub(made, "run", "hi", *(["--json"] if as_json else []))
    assert code == 1
    assert (json.loads(out)["model_output"] if as_json else out.strip()) == "hello"
    assert said.startswith("bub: the turn failed: OSError: cannot clean up (")


def test_a_lifespan_that_fails_at_the_start(bub: Run) -> None:
    async def provide_lifespan() -> AsyncIterator[None]:
        raise OSError("cannot start")
        yield

    code, out, said = bub(framework(answering(), plugin(provide_lifespan=provide_lifespan)), "run", "hi")
    assert (code, out) == (1, "")
    assert said.startswith("bub: the turn failed: OSError: cannot start (")


def test_an_interruption(bub: Run) -> None:
    made = framework(plugin(run_model=raising(KeyboardInterrupt())))
    assert bub(made, "run", "hi") == (130, "", "bub: interrupted\n")


@pytest.mark.parametrize("code", [0, 3, "the end"])
def test_a_plugin_that_ends_the_program_is_told(bub: Run, code: object) -> None:
    made = framework(plugin(run_model=raising(SystemExit(code))))
    ended = bub(made, "run", "hi")
    assert (ended.code, ended.out, ended.said.count("\n")) == (1, "", 1)
    assert ended.said.startswith(f"bub: the turn failed: SystemExit: {code} (tests/builtin/test_commands.py:")


@pytest.mark.parametrize("option", [(), ("--debug",)])
def test_control_characters_do_not_reach_the_terminal(bub: Run, option: tuple[str, ...]) -> None:
    said = bub(framework(plugin(run_model=raising(ValueError("\x1b[31mred")))), "run", "hi", *option).said
    assert "\\x1b[31mred" in said
    assert "\x1b" not in said


def test_an_error_reply_is_one_line(bub: Run) -> None:
    made = framework(answering(), rendering(Envelope(content="one\n\x1b[31mtwo", kind="error")))
    assert bub(made, "run", "hi") == (1, "", "bub: one \\x1b[31mtwo\n")


def test_an_error_of_the_model_goes_to_standard_error(bub: Run) -> None:
    async def run_model_stream() -> AsyncIterator[StreamFailed]:
        yield StreamFailed("model", "over quota")

    made = framework(plugin(run_model_stream=run_model_stream))
    assert bub(made, "run", "hi") == (1, "", "bub: The model failed: over quota\n")
    code, out, said = bub(made, "run", "hi", "--json")
    assert (code, said) == (1, "bub: The model failed: over quota\n")
    assert json.loads(out)["outbounds"][0]["kind"] == "error"


def test_messages_and_errors_are_told_apart(bub: Run) -> None:
    outbounds = [Envelope(content="no"), Envelope(content="fine", kind="error"), Envelope(content="x", kind="error")]
    assert bub(framework(answering(), rendering(*outbounds)), "run", "hi") == (1, "no\n", "bub: fine\nbub: x\n")


# ----------------------------------------------------------------------------------------------- no model answered

HOW = (
    "Set one with BUB_MODEL=provider:model, install 'bub[local]' for one on this machine, or install a plugin that "
    "implements run_model or run_model_stream.\n"
)


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 3)])
def test_no_model_is_configured(bub: Run, options: tuple[str, ...], code: int) -> None:
    expected = (code, f"{NO_MODEL_REPLY}\n", f"bub: no model is configured. {HOW}")
    assert bub(framework(), "run", "hi", *options) == expected


def test_no_plugin_answered(bub: Run) -> None:
    made = framework(
        plugin(run_model=lambda: None, run_model_stream=lambda: None), plugin(run_model=lambda: None), Plugin()
    )
    said = bub(made, "run", "hi", "--strict").said
    assert said == f"bub: no model answered (asked: p1, p0). {HOW}"


def test_strict_changes_nothing_when_a_model_answered(bub: Run) -> None:
    assert bub(framework(answering("hello")), "run", "hi", "--strict") == (0, "hello\n", "")


# ------------------------------------------------------------------------------------------------------------ JSON


def test_the_result_as_json_is_one_line(bub: Run) -> None:
    code, out, said = bub(framework(answering("hello")), "run", "grün", "--json")
    assert (code, out.count("\n"), said) == (0, 1, "")
    assert "grün" in out
    result = json.loads(out)
    assert {name: result[name] for name in ("session_id", "prompt", "model_output", "answered")} == {
        "session_id": "cli:local",
        "prompt": ["grün"],
        "model_output": "hello",
        "answered": True,
    }
    assert result["outbounds"][0]["content"] == "hello"


def test_text_that_cannot_be_encoded_is_escaped_in_json(bub: Run) -> None:
    out = bub(framework(answering("\udcff ü")), "run", "hi", "--json").out
    assert out.isascii()
    assert json.loads(out)["model_output"] == "\udcff ü"


def test_values_that_json_does_not_have_are_told_somehow(bub: Run) -> None:
    class Odd:
        def __repr__(self) -> str:
            return "<odd>"

    out = bub(framework(answering(), rendering(Envelope(context={"odd": Odd()}))), "run", "hi", "--json").out
    assert json.loads(out)["outbounds"][0]["context"] == {"odd": "<odd>"}


# ----------------------------------------------------------------------------------------------------------- hooks


class Greeter:
    @hookimpl(tryfirst=True).system_prompt
    async def system_prompt(self) -> str:
        return "Greet."


def test_hooks_as_json(bub: Run) -> None:
    made = framework(Greeter())
    code, out, said = bub(made, "hooks", "--json")
    listing: dict[str, list[dict[str, Any]]] = json.loads(out)
    assert (code, said, len(listing["hooks"])) == (0, "", 27)
    (hook,) = (hook for hook in listing["hooks"] if hook["name"] == "system_prompt")
    assert (hook["mode"], hook["accepts_async"], hook["failure"]) == ("run_all", True, "propagate")
    (item,) = hook["implementations"]
    assert (item["position"], item["plugin"], item["kind"], item["priority"]) == (1, "p0", "async", "tryfirst")
    assert item["location"].startswith(f"{__file__}:")
    assert [status["name"] for status in listing["plugins"]] == ["p0", "commands"]


def test_one_hook_as_json(bub: Run) -> None:
    (hook,) = json.loads(bub(framework(), "hooks", "save_state", "--json").out)["hooks"]
    assert hook["signature"].startswith("def save_state(self, session_id: str, ")
    assert hook["doc"].startswith("Saves application state")


def test_the_table_and_the_page(bub: Run) -> None:
    made = framework(Greeter())
    assert "1. p0" in bub(made, "hooks").out
    assert "Greeter.system_prompt" in bub(made, "hooks", "system_prompt").out


@pytest.mark.parametrize(
    ("name", "hint"), [("system_promt", ", did you mean 'system_prompt'?"), ("zzz", ""), ("__init__", "")]
)
def test_an_unknown_hook(bub: Run, name: str, hint: str) -> None:
    assert bub(framework(), "hooks", name) == (2, "", f"bub: expected the name of a hook, got {name!r}{hint}\n")


MISTAKES = {
    ",nope": "expected one of the tools (greet), got 'nope'",
    ",greeet": "expected one of the tools (greet), got 'greeet', did you mean 'greet'?",
    ",": "expected one of the commands (greet), got nothing",
    ",greet": "expected a value, got none - argument 'name' of tool 'greet'",
    ",greet 'Ada": 'cannot read the command "greet \'Ada": No closing quotation. Close every quote.',
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_wrong_command_is_the_users_mistake_and_names_no_code(bub: Run, line: str) -> None:
    agent = Agent(tools=[greet], command_prefix=",")

    async def run_model(prompt: str) -> str:
        async with agent.run(prompt, tape="t") as stream:
            return "".join([event.text async for event in stream if isinstance(event, TextDelta)])

    ended = bub(framework(plugin(run_model=run_model)), "run", line)
    assert (ended.code, ended.out, ended.said.count("\n")) == (1, "", 1)
    assert ended.said.startswith(f"bub: {MISTAKES[line]}")
    assert ".py" not in ended.said

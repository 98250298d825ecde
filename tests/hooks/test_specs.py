"""The one declaration of the 27 hooks: its table, its docstrings, and the stub that is made from it."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bub.framework.framework import BubFramework
from bub.hooks import specs
from bub.hooks.dispatch import Handle, specs_of
from bub.hooks.specs import BubHookSpecs
from tests.doubles.hook_plugins import arguments

ROOT = Path(__file__).parents[2]

# hook: mode, may it be asynchronous, what happens on failure, which generator functions it may be, its parameters.
# Written out by hand from section 3 of the design: not derived from what it is compared with.
TABLE = {
    "resolve_session": ("first_result", True, "propagate", "refused", "message"),
    "load_state": ("run_all", True, "propagate", "refused", "message session_id"),
    "build_prompt": ("first_result", True, "propagate", "refused", "message session_id state"),
    "run_model": ("first_result", True, "propagate", "refused", "prompt session_id state"),
    "run_model_stream": ("first_result", True, "propagate", "stream", "prompt session_id state"),
    "continue_prompt": ("first_result", True, "propagate", "refused", "prompt tape state"),
    "save_state": ("run_all", True, "collect", "refused", "session_id state message model_output"),
    "render_outbound": ("run_all", True, "propagate", "refused", "message session_id state model_output"),
    "dispatch_outbound": ("run_all", True, "collect", "refused", "message"),
    "register_cli_commands": ("run_all", False, "propagate", "refused", "app"),
    "onboard_config": ("run_all", False, "propagate", "refused", "current_config"),
    "provide_model_options": ("run_all", True, "propagate", "refused", "session_id workspace"),
    "provide_environment": ("first_result", True, "propagate", "refused", "session_id workspace"),
    "on_error": ("run_all", True, "isolate", "refused", "stage error message"),
    "system_prompt": ("run_all", True, "propagate", "refused", "prompt state"),
    "provide_tape_store": ("first_result", False, "propagate", "entered", ""),
    "provide_lifespan": ("run_all", False, "propagate", "entered", ""),
    "provide_tape_sidecar": ("run_all", False, "propagate", "refused", ""),
    "provide_channels": ("run_all", False, "propagate", "refused", "message_handler"),
    "build_tape_context": ("first_result", False, "propagate", "refused", ""),
    "admit_message": ("first_result", True, "propagate", "refused", "session_id message turn"),
    "provide_steering_inbox": ("first_result", False, "propagate", "entered", ""),
    "provide_tools": ("run_all", False, "propagate", "refused", ""),
    "before_llm_call": ("sequential", True, "isolate", "refused", "request state"),
    "after_llm_call": ("run_all", True, "isolate", "refused", "request result state"),
    "before_tool_call": ("sequential", True, "isolate", "refused", "call state"),
    "after_tool_call": ("run_all", True, "isolate", "refused", "call result state"),
}
EVENTS = {
    "on_error": "hook.on_error_failed",
    "before_llm_call": "hook.agent_hook_failed",
    "after_llm_call": "hook.agent_hook_failed",
    "before_tool_call": "hook.agent_hook_failed",
    "after_tool_call": "hook.agent_hook_failed",
}

HOOKS = sorted(specs_of(BubHookSpecs))


def test_the_declaration_is_the_table() -> None:
    declared = {
        name: (spec.mode, spec.is_async, spec.failure.kind, spec.generators, " ".join(spec.parameters))
        for name, spec in specs_of(BubHookSpecs).items()
    }
    assert declared == TABLE
    assert len(TABLE) == 27


def test_isolated_failures_have_their_log_events() -> None:
    assert {n: s.failure.event for n, s in specs_of(BubHookSpecs).items() if s.failure.kind == "isolate"} == EVENTS


def test_one_priority_order_stands_over_both_model_hooks_and_over_no_others() -> None:
    groups = {name: spec.group for name, spec in specs_of(BubHookSpecs).items()}
    assert groups.pop("run_model") == groups.pop("run_model_stream") == "model stage"
    assert groups == {name: name for name in groups}


def test_only_a_tool_call_can_be_denied() -> None:
    assert [name for name, spec in specs_of(BubHookSpecs).items() if spec.denial is not None] == ["before_tool_call"]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_protocol_has_the_four_fixed_lines_in_order(hook: str) -> None:
    lines = inspect.getdoc(specs_of(BubHookSpecs)[hook].protocol)
    assert lines is not None
    starts = [line.partition(":")[0] for line in lines.splitlines() if line[:1].strip() and ": " in line]
    assert starts[-4:] == ["Dispatch", "Called", "Without an answer", "On failure"]
    assert lines.splitlines()[0].endswith(".")
    assert not lines.splitlines()[1]


@pytest.mark.parametrize("hook", HOOKS)
def test_the_dispatch_line_says_what_the_declaration_does(hook: str) -> None:
    spec = specs_of(BubHookSpecs)[hook]
    doc = inspect.getdoc(spec.protocol)
    assert doc is not None
    line = next(line for line in doc.splitlines() if line.startswith("Dispatch: "))
    mode, _, rest = line.removeprefix("Dispatch: ").partition(";")
    expected = {"first_result": "first result", "run_all": "run all", "sequential": "sequential"}[spec.mode]
    assert mode.partition(",")[0] == expected
    assert rest.strip().startswith("sync or async" if spec.is_async else "sync.")
    assert ("async generator function" in rest) == (spec.generators == "stream")


@pytest.mark.parametrize("hook", HOOKS)
def test_the_failure_line_says_what_the_declaration_does(hook: str) -> None:
    spec = specs_of(BubHookSpecs)[hook]
    doc = inspect.getdoc(spec.protocol)
    assert doc is not None
    line = " ".join(doc.split("On failure: ")[1].split())
    if hook == "admit_message":  # the framework's own way with an exception that the hook propagates
        assert line.startswith("`on_error(stage=")
    elif spec.failure.kind == "collect":
        assert line.startswith("all implementations")
        assert "then the errors are raised" in line
    elif spec.failure.kind == "isolate":
        assert line.startswith(f"isolated; logged as `{spec.failure.event}`")
    else:
        assert line.startswith("propagates")


@pytest.mark.parametrize("hook", HOOKS)
def test_a_protocol_is_named_after_its_hook(hook: str) -> None:
    words = [{"llm": "LLM", "cli": "CLI"}.get(word, word.capitalize()) for word in hook.split("_")]
    assert specs_of(BubHookSpecs)[hook].protocol is getattr(specs, "".join(words))


@pytest.mark.parametrize("hook", HOOKS)
def test_every_parameter_has_a_type_that_can_be_resolved_and_no_default(hook: str) -> None:
    spec = specs_of(BubHookSpecs)[hook]
    assert [name for name in spec.parameters if spec.annotation(name) is Any] == ["app"] * (
        hook == "register_cli_commands"
    )
    assert spec.defaults == {}
    assert all(p.kind is p.KEYWORD_ONLY for p in spec.signature.parameters.values())


def test_the_example_calls_of_the_tests_fit_every_hook() -> None:
    assert {name: tuple(sorted(given)) for name, given in arguments().items()} == {
        name: tuple(sorted(spec.parameters)) for name, spec in specs_of(BubHookSpecs).items()
    }


def test_the_stub_is_not_stale() -> None:
    where = ROOT / "tools" / "generate_markers.py"
    found = importlib.util.spec_from_file_location("generate_markers", where)
    assert found is not None
    assert found.loader is not None
    generator = importlib.util.module_from_spec(found)
    found.loader.exec_module(generator)
    assert Path(specs.__file__).with_name("markers.pyi").read_text(encoding="utf-8") == generator.render()


def test_neither_the_declaration_nor_a_registration_imports_a_heavy_library() -> None:
    code = """
import sys
from bub.hooks.failures import HookFailures
from bub.hooks.registry import HookRegistry
from bub.hooks.specs import BubHookSpecs
from bub.hooks.markers import hookimpl
from bub.envelope import Envelope
from bub.turn import TurnState
from bub.prompt import LegacyPrompt
from bub.core.events import LLMCallRequest, LLMCallResult
class Plugin:
    @hookimpl.build_prompt
    def build_prompt(self, message: Envelope, session_id: str, state: TurnState) -> LegacyPrompt: return "x"
    @hookimpl.run_model
    async def run_model(self, prompt: LegacyPrompt, state: TurnState) -> str: return "x"
    @hookimpl.before_llm_call
    def before(self, request: LLMCallRequest): return None
    @hookimpl.after_llm_call
    def after(self, request: "LLMCallRequest", result: "LLMCallResult"): return None
failures = HookFailures()
HookRegistry(BubHookSpecs(failures), failures).register(Plugin())
print(sorted({"republic", "pydantic", "typer", "httpx2"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------------------------- what a completion list shows


def public(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


def test_the_hooks_are_all_that_is_public_of_them() -> None:  # M2
    assert public(BubFramework().hooks) == set(specs_of(BubHookSpecs))
    assert public(BubHookSpecs) == set()


def test_what_is_public_of_the_runtime() -> None:  # M2
    calls = {"call_first", "call_first_sync", "call_many", "call_many_sync"}
    assert public(BubFramework().runtime) == {*calls, "hooks", "failures", "notify_error"}


@pytest.mark.parametrize("hook", HOOKS)
def test_a_handle_has_what_its_type_shows(hook: str) -> None:  # M1
    handle = getattr(BubFramework().hooks, hook)
    spec = specs_of(BubHookSpecs)[hook]
    shown = {name for name in (*dir(Handle), *Handle.__annotations__) if not name.startswith("_")}
    assert shown == {"is_async", "mode", "spec"}
    assert (handle.mode, handle.is_async, handle.spec) == (spec.mode, spec.is_async, spec)

"""What a user gets: the built wheel and plugin distributions, installed with pip; the `bub` script as a subprocess."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from bub.framework.report import HookReport
from bub.hooks.loading import PluginStatus
from bub.turn import NO_MODEL_REPLY

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[1]
PLUGINS: Final = sorted(Path(__file__).with_name("plugins").iterdir())
FAILURES: Final = (
    "bub: hook.plugin_failed broken: cannot load plugin 'broken': ModuleNotFoundError: "
    "No module named 'bub_plugin_broken_backend'",
    "bub: hook.plugin_failed echo (bub-plugin-rival): cannot load plugin 'echo': 'bub-plugin-rival' and "
    "'bub-plugin-echo' both claim the name; the latter has it",
    "bub: hook.plugin_failed faulty: cannot load plugin 'faulty': RuntimeError: the account has no credit left",
)
"""What every command says on standard error about the plugins that cannot be loaded."""


class Listing(msgspec.Struct, forbid_unknown_fields=True):
    """What `bub hooks --json` prints."""

    hooks: list[HookReport]
    plugins: list[PluginStatus]


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    said: list[str]
    """Lines on standard error without those about plugins that cannot be loaded."""


class Installation(NamedTuple):
    """A virtual environment, and the folder in which commands run."""

    scripts: Path
    folder: Path

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BUB_", "LC_"))}
        own = {"BUB_HOME": str(self.folder / "data"), "BUB_MEMORY_FILE": str(self.folder / "memory.json")}
        return {**kept, **own, **variables}

    def run(self, *command: str | bytes, **variables: str) -> Ended:
        program, *arguments = command
        ended = subprocess.run(
            [self.scripts / os.fsdecode(program), *arguments],
            cwd=self.folder,
            env=self.environment(variables),
            capture_output=True,
            timeout=60,
            check=False,
        )
        said = ended.stderr.decode().splitlines()
        out = ended.stdout.decode(errors="surrogateescape")
        return Ended(ended.returncode, out, [line for line in said if line not in FAILURES])

    def bub(self, *arguments: str | bytes, **variables: str) -> Ended:
        return self.run("bub", *arguments, **variables)

    def listing(self, *arguments: str, **variables: str) -> Listing:
        ended = self.bub("hooks", "--json", *arguments, **variables)
        assert ended.code == 0
        return msgspec.json.decode(ended.out, type=Listing)

    def memory(self) -> Any:
        return json.loads((self.folder / "memory.json").read_text())


def successful(*command: str | Path, cwd: Path = ROOT) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"


def installation(folder: Path, requirements: Iterable[str | Path]) -> Path:
    """The folder with the scripts of a new virtual environment."""
    successful(sys.executable, "-m", "venv", folder)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    successful(scripts / "python", "-m", "pip", "install", "--quiet", "--no-compile", *requirements)
    return scripts


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The scripts of two environments: bub with the extra and all plugins, and bub alone."""
    folder = tmp_path_factory.mktemp("installed")

    def build(project: Path) -> Path:
        wheels = folder / "wheels" / project.name
        successful(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels, cwd=project)
        (wheel,) = wheels.iterdir()
        return wheel

    with ThreadPoolExecutor() as pool:
        bub, *plugins = pool.map(build, (ROOT, *PLUGINS))
        full = pool.submit(installation, folder / "full", (f"{bub}[app]", *plugins))
        bare = pool.submit(installation, folder / "bare", (bub,))
        return full.result(), bare.result()


@pytest.fixture
def user(environments: tuple[Path, Path], tmp_path: Path) -> Installation:
    return Installation(environments[0], tmp_path)


@pytest.fixture
def user_without_extra(environments: tuple[Path, Path], tmp_path: Path) -> Installation:
    return Installation(environments[1], tmp_path)


# ------------------------------------------------------------------------------------------------------ bub run


def test_run_prints_what_the_plugins_make_of_a_message(user: Installation) -> None:
    assert user.bub("run", "hello there") == (0, "echo: hello there\n(cli:local cli local human)\n", [])


def test_every_option_of_run_arrives_in_the_plugins(user: Installation, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    options = ("--channel", "mail", "--chat-id", "7", "--sender-id", "ann", "--session-id", "s1", "-w", "work")
    ended = user.bub("run", "hello", *options, BUB_MEMORY_FILE="")
    assert ended == (0, "echo: hello\n(s1 mail 7 ann)\n", [])
    assert (workspace / ".bub-memory.json").is_file()


def test_state_is_kept_from_one_program_to_the_next(user: Installation) -> None:
    user.bub("run", "one", "--session-id", "s")
    user.bub("run", "two", "--session-id", "s")
    assert user.bub("recall", "s").out == '["one", "echo: one"]\n["two", "echo: two"]\n'


def test_run_with_json_prints_the_result_of_the_turn(user: Installation) -> None:
    result = json.loads(user.bub("run", "hello", "--json").out)
    assert sorted(result) == ["answered", "model_output", "outbounds", "prompt", "session_id"]
    assert result["session_id"] == "cli:local"
    assert result["prompt"] == ["hello"]
    assert result["model_output"] == "echo: hello"
    assert result["answered"] is True
    assert [outbound["content"] for outbound in result["outbounds"]] == ["echo: hello", "(cli:local cli local human)"]


def test_a_failing_turn_is_one_line_and_what_was_answered_is_saved(user: Installation) -> None:
    ended = user.bub("run", "hello", BUB_ECHO_ERROR="the line\nis dead")
    place = "bub_plugin_echo.py:38"
    line = f"bub: the turn failed: EchoError: the line is dead ({place}). --debug shows the traceback."
    assert ended == (1, "", [line])
    assert user.memory()["sessions"] == {"cli:local": [{"said": "hello", "answered": "echo: hello"}]}


def test_the_traceback_of_a_failing_turn_comes_with_debug(user: Installation) -> None:
    code, out, said = user.bub("run", "hello", "--debug", BUB_ECHO_ERROR="dead")
    assert (code, out) == (1, "")
    assert said[0] == "Traceback (most recent call last):"
    assert said[-2:] == [
        "bub_plugin_echo.EchoError: dead",
        "bub: the turn failed: EchoError: dead (bub_plugin_echo.py:38)",
    ]


@pytest.mark.parametrize(("option", "code"), [((), 0), (("--strict",), 3)])
def test_without_a_model_the_fallback_is_printed_with_a_notice(
    user: Installation, option: tuple[str, ...], code: int
) -> None:
    ended = user.bub("run", "hello", *option, BUB_DISABLED_PLUGINS="echo")
    assert ended[:2] == (code, f"{NO_MODEL_REPLY}\n")
    (notice,) = ended.said
    assert notice.startswith("bub: no model is configured. Set one with BUB_MODEL=provider:model")


def test_a_workspace_that_is_no_folder_is_refused(user: Installation) -> None:
    ended = user.bub("run", "hello", "--workspace", "nowhere")
    assert ended == (2, "", ["bub: expected an existing folder, got 'nowhere' - --workspace"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "Missing argument 'MESSAGE'."),
        (("run", "hello", "--chanel", "mail"), "No such option: --chanel"),
        (("rnu",), "No such command 'rnu'."),
    ],
)
def test_a_wrong_command_line_is_explained(user: Installation, arguments: tuple[str, ...], message: str) -> None:
    code, out, said = user.bub(*arguments)
    assert (code, out) == (2, "")
    assert said[0].startswith("Usage: bub ")
    assert message in said[-1]


# --------------------------------------------------------------------------------------------- text that is not ASCII

ASCII: Final = {"PYTHONIOENCODING": "ascii"}
C_LOCALE: Final = {"LC_ALL": "C"}
BARE_C_LOCALE: Final = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
STRICT_UTF_8: Final = {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8:strict"}


@pytest.mark.parametrize("variables", [ASCII, C_LOCALE, BARE_C_LOCALE, STRICT_UTF_8])
@pytest.mark.parametrize("said", ["grün 😀".encode(), b"no text: \xff"])
def test_any_text_goes_through(user: Installation, variables: dict[str, str], said: bytes) -> None:
    code, out, errors = user.bub("run", said, **variables)
    assert (code, out.count("\n"), errors) == (0, 2, [])
    code, out, errors = user.bub("run", said, "--json", **variables)
    assert (code, errors) == (0, [])
    assert json.loads(out)["model_output"] == f"echo: {json.loads(out)['prompt'][0]}"


def test_characters_that_the_output_does_not_have_are_escaped(user: Installation) -> None:
    assert user.bub("run", "grün 😀", PYTHONUTF8="1", PYTHONIOENCODING="utf-8").out.startswith("echo: grün 😀\n")
    assert user.bub("run", "grün 😀", PYTHONUTF8="1", **ASCII).out.startswith("echo: gr\\xfcn \\U0001f600\n")
    assert json.loads(user.bub("run", "grün 😀", "--json", PYTHONUTF8="1", **ASCII).out)["prompt"] == ["grün 😀"]


# -------------------------------------------------------------------------------------------------- how it can end


@pytest.mark.parametrize("arguments", [("run", "hello"), ("hooks",), ("hooks", "--json"), ("--help",), ("--version",)])
def test_a_reader_that_goes_away_brings_no_traceback(user: Installation, arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ended = subprocess.run(
            [user.scripts / "bub", *arguments],
            cwd=user.folder,
            env=user.environment({}),
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 141  # as shells say of a program that SIGPIPE has ended
    assert [line for line in ended.stderr.splitlines() if line not in FAILURES] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("arguments", ["run hello", "hooks", "hooks --json"])
@pytest.mark.parametrize(
    ("output", "line"),
    [
        (">/dev/full", "bub: OSError: [Errno 28] No space left on device (bub/builtin/printing.py:"),
        (">&-", "bub: there is no standard output to write to"),
    ],
)
def test_an_output_that_takes_nothing_is_told_in_one_line(
    user: Installation, arguments: str, output: str, line: str
) -> None:
    ended = subprocess.run(
        ["sh", "-c", f"'{user.scripts / 'bub'}' {arguments} {output}"],
        cwd=user.folder,
        env=user.environment({}),
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    said = [one for one in ended.stderr.splitlines() if one not in FAILURES]
    assert (ended.returncode, len(said)) == (1, 1)
    assert said[0].startswith(line)


@pytest.mark.skipif(os.name == "nt", reason="SIGINT cannot be sent to one process there")
def test_control_c_ends_a_turn_in_order(user: Installation) -> None:
    process = subprocess.Popen(
        [user.scripts / "bub", "run", "hello"],
        cwd=user.folder,
        env=user.environment({"BUB_ECHO_DELAY": "30"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # it is ignored where tests run in background
    )
    deadline = time.monotonic() + 30
    while not (user.folder / "memory.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert user.memory()["is_open"] is True
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    said = [line for line in errors.splitlines() if line not in FAILURES]
    assert (process.returncode, out, said) == (130, "", ["bub: interrupted"])
    assert user.memory()["is_open"] is False


# ---------------------------------------------------------------------------------------------------- bub hooks


def test_hooks_as_json_are_in_call_order_with_their_origin(user: Installation) -> None:
    hooks = {report.name: report for report in user.listing().hooks}
    assert len(hooks) == 27
    called = {name: [item.plugin for item in report.implementations] for name, report in hooks.items()}
    assert {name: plugins for name, plugins in called.items() if plugins} == {
        "load_state": ["memory", "builtin"],
        "build_prompt": ["builtin"],
        "run_model_stream": ["echo", "builtin"],
        "save_state": ["memory"],
        "render_outbound": ["echo"],
        "register_cli_commands": ["memory", "builtin"],
        "provide_environment": ["builtin"],
        "system_prompt": ["memory", "echo"],
        "provide_lifespan": ["memory", "builtin"],
        "provide_tape_store": ["builtin"],
        "provide_channels": ["builtin"],
        "provide_steering_inbox": ["builtin"],
    }
    memory, echo = hooks["system_prompt"].implementations
    assert (memory.position, memory.kind, memory.priority) == (1, "sync", "plain")
    assert (echo.position, echo.kind, echo.priority) == (2, "async", "plain")
    assert (memory.distribution, echo.distribution) == ("bub-plugin-memory", "bub-plugin-echo")
    assert (memory.qualname, echo.qualname) == ("MemoryPlugin.system_prompt", "bub_plugin_echo.system_prompt")
    for item in (memory, echo):
        file, _, line = item.location.rpartition(":")
        assert "system_prompt" in "".join(Path(file).read_text().splitlines()[int(line) - 1 : int(line) + 1])
    assert hooks["provide_lifespan"].implementations[0].kind == "async"
    assert hooks["provide_lifespan"].implementations[0].priority == "tryfirst"
    assert hooks["save_state"].implementations[0].priority == "trylast"
    assert hooks["run_model_stream"].one_list_with == ("run_model",)


def test_plugins_are_listed_with_what_became_of_them(user: Installation) -> None:
    statuses = user.listing(BUB_DISABLED_PLUGINS="memory").plugins
    assert [(s.name, s.state, s.distribution, s.version) for s in statuses] == [
        ("builtin", "ok", "bub", "0.1.0"),
        ("broken", "failed", "bub-plugin-broken", "0.1.0"),
        ("echo", "ok", "bub-plugin-echo", "0.3.1"),
        ("echo", "failed", "bub-plugin-rival", "0.9.0"),
        ("faulty", "failed", "bub-plugin-faulty", "2.0.0"),
        ("memory", "disabled", "bub-plugin-memory", "1.2.0"),
    ]
    assert [FAILURES[place].partition(": cannot")[2] for place in range(3)] == [
        status.reason.partition("cannot")[2] for status in statuses if status.state == "failed"
    ]
    assert statuses[-1].reason == "named in BUB_DISABLED_PLUGINS"


def test_a_plugin_that_is_not_there_cannot_be_disabled(user: Installation) -> None:
    (warning,) = user.bub("hooks", BUB_DISABLED_PLUGINS="echo, memoy").said
    assert warning == "bub: hook.unknown_plugin 'memoy' is not installed, did you mean 'memory'?"


def test_hooks_prints_a_table(user: Installation) -> None:
    code, out, said = user.bub("hooks")
    assert (code, said) == (0, [])
    assert "\x1b" not in out
    lines = out.splitlines()
    place = lines.index("system_prompt (run all)")
    assert lines[place + 1].split() == ["1.", "memory", "bub-plugin-memory", "sync", "bub_plugin_memory/plugin.py:73"]
    assert lines[place + 2].split() == ["2.", "echo", "bub-plugin-echo", "async", "bub_plugin_echo.py:21"]
    assert "      cannot load plugin 'faulty': RuntimeError: the account has no credit left" in lines
    assert any(line.split() == ["memory", "ok", "bub-plugin-memory", "1.2.0"] for line in lines)


def test_hooks_with_a_name_shows_one_hook(user: Installation) -> None:
    code, out, said = user.bub("hooks", "load_state")
    assert (code, said) == (0, [])
    assert "def load_state(self, message: Envelope, session_id: str) -> Mapping[str, Any] | None: ..." in out
    assert "Restores the state of a session for one turn." in out
    assert "MemoryPlugin.load_state" in out
    assert [report.name for report in user.listing("load_state").hooks] == ["load_state"]


def test_hooks_with_an_unknown_name_says_which_is_near(user: Installation) -> None:
    line = "bub: expected the name of a hook, got 'load_stat', did you mean 'load_state'?"
    assert user.bub("hooks", "load_stat") == (2, "", [line])


# ------------------------------------------------------------------------------------------------ the script itself


def test_help_lists_the_commands_of_all_plugins(user: Installation) -> None:
    code, out, said = user.bub("--help")
    assert (code, said) == (0, [])
    commands = out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in commands] == ["chat", "hooks", "recall", "run", "gateway", "tape"]
    assert user.bub("-h") == user.bub("--help")


def test_the_package_can_be_run_as_well(user: Installation) -> None:
    code, out, said = user.run("python", "-m", "bub", "run", "hello")
    assert (code, out.splitlines()[0], said) == (0, "echo: hello", [])


def test_version(user: Installation) -> None:
    assert user.bub("--version") == (0, "bub 0.1.0\n", [])


@pytest.mark.parametrize("command", [("bub",), ("bub", "run", "hello"), ("python", "-m", "bub", "--help")])
def test_without_the_extra_the_script_says_how_to_install_it(
    user_without_extra: Installation, command: tuple[str, ...]
) -> None:
    line = 'bub: the command line needs an extra. Run: python -m pip install "bub[app]"'
    assert user_without_extra.run(*command) == (2, "", [line])


def test_without_the_extra_a_program_can_run_turns(user_without_extra: Installation) -> None:
    program = (
        "import anyio\n"
        "from bub import BubFramework\n"
        "framework = BubFramework()\n"
        "framework.load_hooks()\n"
        "print([status.state for status in framework.plugin_status.values()])\n"
        "print(anyio.run(framework.process_inbound, 'hello').answered)\n"
    )
    assert user_without_extra.run("python", "-W", "error", "-c", program) == (0, "['ok']\nFalse\n", [])

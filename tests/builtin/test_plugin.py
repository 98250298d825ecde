"""The default plugin."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bub.builtin.local_environment import LocalEnvironment
from bub.builtin.plugin import BuiltinPlugin
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.turn import ENVIRONMENT, TurnState
from tests.doubles.turns import answering, plugin


def loaded() -> BubFramework:
    made = BubFramework()
    made.register(BuiltinPlugin(made), name="builtin")
    return made


def run() -> None:
    """Replaces the command of bub."""
    typer.echo("replaced")


class Replacement:
    @hookimpl.register_cli_commands
    def register_cli_commands(self, app: typer.Typer) -> None:
        app.command()(run)


def test_it_adds_the_commands() -> None:
    output = CliRunner().invoke(loaded().create_cli_app(), ["--help"]).output
    listed = [line.split()[0] for line in output.partition("Commands:\n")[2].splitlines()]
    assert listed == ["chat", "hooks", "run", "gateway", "tape"]


def test_a_command_of_another_plugin_replaces_its_own() -> None:
    made = loaded()
    made.register(Replacement())
    assert CliRunner().invoke(made.create_cli_app(), ["run"]).output == "replaced\n"


@pytest.mark.anyio
async def test_it_provides_a_local_environment_at_the_workspace(tmp_path: Path) -> None:
    seen: list[object] = []

    def build_prompt(state: TurnState) -> None:
        seen.append(ENVIRONMENT.require(state))

    made = loaded()
    made.workspace = tmp_path
    made.register(answering(), name="model")
    made.register(plugin(build_prompt=build_prompt), name="looks")
    await made.process_inbound("hi")
    (environment,) = seen
    assert isinstance(environment, LocalEnvironment)
    assert environment.workspace == tmp_path


def test_loading_it_imports_neither_the_command_line_nor_an_event_loop() -> None:
    program = (
        "import sys, bub\n"
        "from bub.builtin.plugin import BuiltinPlugin\n"
        "made = bub.BubFramework()\n"
        "made.register(BuiltinPlugin(made))\n"
        "late = {'typer', 'asyncio', 'sqlite3', 'bub.builtin.commands', 'bub.builtin.local_environment'}\n"
        "print(sorted(late & {*sys.modules}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "[]\n"


def test_the_help_loads_neither_the_commands_of_tapes_nor_what_they_need() -> None:
    program = (
        "import sys, bub, typer.main\n"
        "from bub.builtin.plugin import BuiltinPlugin\n"
        "made = bub.BubFramework()\n"
        "made.register(BuiltinPlugin(made))\n"
        "typer.main.get_command(made.create_cli_app()).main(['--help'], standalone_mode=False)\n"
        "late = ('sqlite3', 'rich', 'asyncio', 'bub.builtin.tape_commands', 'bub.builtin.configured_store',\n"
        "        'bub.builtin.gateway_commands', 'bub.gateway.manager')\n"
        "print([name for name in late if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "  tape   " in ended.stdout
    assert ended.stdout.endswith("\n[]\n")

"""The commands `bub run` and `bub hooks`: what they take, what they print, how they exit."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import anyio
import msgspec

from bub.builtin.hook_listing import hook_page, hook_table
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.hooks.specs import BubHookSpecs
from bub.messages import LazyModule, to_builtins
from bub.nearness import did_you_mean
from bub.turn import TurnResult

if TYPE_CHECKING:
    import typer
else:
    typer = LazyModule("typer")  # the annotations below are read only when a command line is made

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_ANSWER: Final = 3
EXIT_INTERRUPTED: Final = 130

NO_ANSWER_NOTICE: Final = (
    "bub: no model answered. Set BUB_MODEL=provider:model, or install a plugin that implements run_model."
)


class Commands:
    """The commands, on one framework."""

    def __init__(self, framework: BubFramework) -> None:
        self._framework = framework

    def add_to(self, app: typer.Typer) -> None:
        """Add the commands to an application."""
        app.command()(self.run)
        app.command()(self.hooks)

    def run(
        self,
        message: Annotated[str, typer.Argument(help="What to say.")],
        channel: Annotated[str, typer.Option(help="The channel that the message comes from.")] = "cli",
        chat_id: Annotated[str, typer.Option(help="The chat inside the channel.")] = "local",
        sender_id: Annotated[str, typer.Option(help="Who sends it.")] = "human",
        session_id: Annotated[str | None, typer.Option(help="The session; by default the plugins decide.")] = None,
        workspace: Annotated[
            Path | None, typer.Option("--workspace", "-w", help="The folder in which tools work.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
        strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 when no model answered.")] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of a failing turn.")] = False,
    ) -> None:
        """Run one message through the plugins and print the reply."""
        if workspace is not None:
            self._framework.workspace = _folder(workspace)
        envelope = Envelope(
            content=message, channel=channel, chat_id=chat_id, sender_id=sender_id, session_id=session_id
        )
        result = _turn(self._framework, envelope, debug=debug)
        if as_json:
            _write(msgspec.json.encode(to_builtins(result)).decode())
        else:
            for outbound in result.outbounds:
                _write(outbound.content)
        if not result.answered:
            sys.stderr.write(f"{NO_ANSWER_NOTICE}\n")
            if strict:
                raise typer.Exit(EXIT_NO_ANSWER)

    def hooks(
        self,
        name: Annotated[str | None, typer.Argument(help="Show the signature and the rules of this hook.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    ) -> None:
        """List the hooks with their implementations in the order in which they are called."""
        if name is not None and name not in BubHookSpecs.declared:
            _fail(f"expected the name of a hook, got {name!r}{did_you_mean(name, BubHookSpecs.declared)}", EXIT_USAGE)
        reports = [report for report in self._framework.hook_report() if name is None or report.name == name]
        statuses = list(self._framework.plugin_status.values())
        if as_json:
            _write(msgspec.json.format(msgspec.json.encode({"hooks": reports, "plugins": statuses})).decode())
        elif name is None:
            _write(hook_table(reports, statuses))
        else:
            _write(hook_page(BubHookSpecs.declared[name], reports[0]))


def _turn(framework: BubFramework, envelope: Envelope, *, debug: bool) -> TurnResult:
    """One turn; a failing one ends the program with one clear line."""

    async def one_turn() -> TurnResult:
        async with framework.running():
            return await framework.process_inbound(envelope)

    try:
        return anyio.run(one_turn)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        _fail(_described(error), EXIT_FAILED)


def _described(error: Exception) -> str:
    """An error in one line, with the place in a plugin where it was raised."""
    text = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    inner = "; ".join(f"{type(e).__qualname__}: {e}" for e in error.exceptions) if isinstance(error, ExceptionGroup) else ""
    return f"{type(error).__qualname__}: {text}{f' [{inner}]' if inner else ''}{place}"


def _folder(path: Path) -> Path:
    if not path.is_dir():
        _fail(f"expected an existing folder, got {str(path)!r} - --workspace", EXIT_USAGE)
    return path.resolve()


def _write(text: str) -> None:
    """Print to standard output, also what its encoding does not have."""
    stream = sys.stdout
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _fail(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"bub: {text}\n")
    raise typer.Exit(code)

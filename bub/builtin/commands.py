"""The commands `bub run` and `bub hooks`: what they take, what they print, how they exit."""

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bub.builtin.hook_listing import hook_page, hook_table
from bub.builtin.printing import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    fail,
    print_json,
    print_text,
    say,
    write_error,
)
from bub.builtin.program_end import until_signalled
from bub.envelope import Envelope
from bub.framework.failure_line import failure_line, one_line, plugin_folders, says_all, visible
from bub.framework.framework import BubFramework
from bub.hooks.dispatch import specs_of, table_of
from bub.hooks.specs import BubHookSpecs
from bub.lazy import LazyModule
from bub.nearness import did_you_mean
from bub.turn import TurnResult

if TYPE_CHECKING:
    import anyio
else:  # `bub --help` does not need it
    anyio = LazyModule("anyio")

EXIT_NO_ANSWER: Final = 3

HOW_TO_SET_A_MODEL: Final = (
    "Set one with BUB_MODEL=provider:model, install 'bub[local]' for one on this machine, or install a plugin that "
    "implements run_model or run_model_stream."
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
        message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What to say.")],
        channel: Annotated[str, typer.Option(metavar="NAME", help="The channel that the message comes from.")] = "cli",
        chat_id: Annotated[str, typer.Option(metavar="ID", help="The chat inside the channel.")] = "local",
        sender_id: Annotated[str, typer.Option(metavar="ID", help="Who sends the message.")] = "human",
        session_id: Annotated[
            str | None, typer.Option(metavar="ID", help="The session; by default the plugins decide.")
        ] = None,
        workspace: Annotated[
            Path | None,
            typer.Option(
                "--workspace", "-w", metavar="FOLDER", help="Where tools work; by default the current folder."
            ),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the result of the turn as JSON.")] = False,
        strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 when no model answered.")] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of a failing turn.")] = False,
    ) -> None:
        """Run one message through the plugins and print the reply."""
        if workspace is not None:
            self._framework.workspace = _folder(workspace)
        envelope = Envelope(
            content=message, channel=channel, chat_id=chat_id, sender_id=sender_id, session_id=session_id
        )
        turn = _Turn(self._framework, envelope)
        try:
            code = anyio.run(until_signalled, turn.run)
        except KeyboardInterrupt:
            fail("interrupted", EXIT_INTERRUPTED)
        except (Exception, SystemExit) as error:  # a plugin does not end the program: it would without a word
            _print_result(turn.result, as_json=as_json)  # there is one when only the cleaning up failed
            if debug:
                write_error(visible("".join(traceback.format_exception(error))))
            if says_all(error):
                fail(one_line(str(error)), EXIT_FAILED)
            line = failure_line(error, plugin_folders(self._framework.hook_report()))
            hint = "" if debug else ". --debug shows the traceback."
            fail(f"the turn failed: {line}{hint}", EXIT_FAILED)
        _print_result(turn.result, as_json=as_json)
        if code:
            raise typer.Exit(code)
        self._exit(turn.result, strict=strict)

    def hooks(
        self,
        name: Annotated[
            str | None, typer.Argument(metavar="NAME", help="Show the signature and the rules of this hook.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    ) -> None:
        """List the hooks and their implementations in call order."""
        known = specs_of(BubHookSpecs)
        if name is not None and name not in known:
            fail(f"expected the name of a hook, got {name!r}{did_you_mean(name, known)}", EXIT_USAGE)
        reports = [report for report in self._framework.hook_report() if name is None or report.name == name]
        statuses = list(self._framework.plugin_status.values())
        if as_json:
            print_json({"hooks": reports, "plugins": statuses})
        elif name is None:
            print_text(hook_table(reports, statuses))
        else:
            print_text(hook_page(reports[0]))

    def _exit(self, result: TurnResult | None, *, strict: bool) -> None:
        """Say on standard error what went wrong, and end with the code for it."""
        if result is None:
            return
        errors = [one_line(outbound.content) for outbound in result.outbounds if outbound.kind == "error"]
        if errors:
            fail("\nbub: ".join(errors), EXIT_FAILED)
        if not result.answered:
            asked = self._model_plugins()
            what = f"no model answered (asked: {', '.join(asked)})" if asked else "no model is configured"
            say(f"{what}. {HOW_TO_SET_A_MODEL}")
            if strict:
                raise typer.Exit(EXIT_NO_ANSWER)

    def _model_plugins(self) -> list[str]:
        """The plugins beside bub's own that might have answered."""
        bound = table_of(self._framework.hooks).bound
        both = [item.plugin for name in ("run_model", "run_model_stream") for item in bound(name)]
        return [plugin for plugin in dict.fromkeys(both) if plugin != "builtin"]


class _Turn:
    """One turn from the command line.

    Attributes:
        result: What came out of it; None when it failed.
    """

    def __init__(self, framework: BubFramework, message: Envelope) -> None:
        self._framework = framework
        self._message = message
        self.result: TurnResult | None = None

    async def run(self) -> int:
        async with self._framework.running():
            self.result = await self._framework.process_inbound(self._message)
        return 0


def _folder(path: Path) -> Path:
    if not path.is_dir():
        fail(f"expected an existing folder, got {str(path)!r} - --workspace", EXIT_USAGE)
    return path.resolve()


def _print_result(result: TurnResult | None, *, as_json: bool) -> None:
    if result is None:
        return
    if as_json:
        print_json(result, indent=None)
    else:
        for outbound in result.outbounds:
            if outbound.kind != "error":
                print_text(visible(outbound.content) if sys.stdout.isatty() else outbound.content)

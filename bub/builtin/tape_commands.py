"""The commands of `bub tape`: what they take, and how they end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

import anyio
import typer

from bub.builtin import tape_files, tape_input, tape_output, tape_upkeep, tape_views
from bub.builtin.printing import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, fail
from bub.builtin.tape_access import OpenStore, with_store
from bub.errors import BubError, TapeError
from bub.framework.failure_line import failure_line, one_line, plugin_folders
from bub.framework.framework import BubFramework
from bub.tape.naming import is_unicode
from bub.tape.store import MAX_COUNT, TapeFilters, TapeQuery

T = TypeVar("T")

PAGE: Final = 50
HITS: Final = 20

logger: Final = logging.getLogger("bub")

_Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The tape, or its session.")]
_Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
_Limit: TypeAlias = Annotated[int, typer.Option(metavar="N", min=0, help="At most so many; 0 for all.")]
_Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class TapeCommands:
    """The commands, on the tape store of one framework.

    Args:
        framework: Whose plugins provide the store.
    """

    def __init__(self, framework: BubFramework) -> None:
        self._framework = framework

    def app(self) -> typer.Typer:
        """An application of the commands."""
        app = typer.Typer(rich_markup_mode=None)
        app.command("list")(self.list_tapes)
        app.command()(self.show)
        app.command()(self.search)
        app.command()(self.info)
        app.command()(self.export)
        app.command("import")(self.import_files)
        app.command()(self.archive)
        app.command()(self.reset)
        app.command()(self.compact)
        app.command()(self.verify)
        return app

    # ------------------------------------------------------------------------------------------------------ looking

    def list_tapes(
        self,
        prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only tapes whose name begins so.")] = "",
        limit: _Limit = PAGE,
        after: Annotated[
            str | None, typer.Option(metavar="NAME", help="The last tape of the page before, to get the next.")
        ] = None,
        every: Annotated[bool, typer.Option("--all", help="Show tapes of sidecars on lines of their own.")] = False,
        as_json: _Json = False,
    ) -> None:
        """List the tapes, by name."""
        _check_unicode(prefix, "PREFIX")
        _check_unicode(after or "", "--after")
        self._do(
            lambda opened: tape_views.show_tapes(
                opened, prefix, after=after, limit=_most(limit), every=every, as_json=as_json
            )
        )

    def show(
        self,
        name: _Name,
        limit: _Limit = PAGE,
        after: Annotated[
            int | None, typer.Option(metavar="ID", help="The last entry of the page before, to get the next.")
        ] = None,
        newest: Annotated[bool, typer.Option("--newest", help="Newest entry first.")] = False,
        kind: Annotated[
            list[str] | None, typer.Option(metavar="KIND", help="Only this kind; may be given several times.")
        ] = None,
        since: Annotated[
            str | None, typer.Option(metavar="DATE", help="Only from this day or moment on, in UTC.")
        ] = None,
        until: Annotated[str | None, typer.Option(metavar="DATE", help="Only up to this day or moment.")] = None,
        run: Annotated[str | None, typer.Option(metavar="ID", help="Only what this run wrote.")] = None,
        full: Annotated[bool, typer.Option("--full", help="Print the whole text of each entry.")] = False,
        as_json: _Json = False,
    ) -> None:
        """Show the entries of a tape."""
        if "" in (kind or ()):
            fail("expected a kind, such as message, got none - --kind", EXIT_USAGE)
        if run is not None and not run.strip():
            fail("expected the id of a run, got none - --run", EXIT_USAGE)
        filters: TapeFilters = {"newest_first": newest, "kinds": kind or (), "run_id": run}
        if since is not None or until is not None:
            _check_date(since, "--since")
            _check_date(until, "--until")
            filters["dates"] = since, until
        query = _query(filters)
        self._do(
            lambda opened: tape_views.show_entries(
                opened, name, query, after=after, limit=_most(limit), full=full, as_json=as_json
            )
        )

    def search(
        self,
        text: Annotated[str, typer.Argument(metavar="TEXT", help="Words that all have to be in an entry.")],
        tape: Annotated[str | None, typer.Option(metavar="NAME", help="Only this tape, or that of a session.")] = None,
        limit: _Limit = HITS,
        as_json: _Json = False,
    ) -> None:
        """Find words in all tapes, the newest first."""
        if not text.strip():
            fail("expected words to look for, got none", EXIT_USAGE)
        self._do(lambda opened: tape_views.show_hits(opened, text, name=tape, limit=_most(limit), as_json=as_json))

    def info(
        self,
        name: Annotated[str | None, typer.Argument(metavar="NAME", help="A tape, or its session.")] = None,
        as_json: _Json = False,
    ) -> None:
        """Tell how much the store, or one tape, holds."""
        if name is None:
            self._do(lambda opened: tape_views.show_store(opened, as_json=as_json))
        else:
            self._do(lambda opened: tape_views.show_tape(opened, name, as_json=as_json))

    # ------------------------------------------------------------------------------------------------------- moving

    def export(
        self,
        names: Annotated[
            list[str] | None, typer.Argument(metavar="[NAME]...", help="The tapes, or their sessions; none for all.")
        ] = None,
        output: Annotated[
            Path | None,
            typer.Option("--output", "-o", metavar="FILE", help="The file; - is standard output, as none is."),
        ] = None,
    ) -> None:
        """Write tapes as lines of JSON, with those of their sidecars."""
        if output == Path(tape_input.STANDARD_INPUT):
            output = None
        with self._ending(), tape_output.output_to(output) as write:
            problems = self._do(lambda opened: tape_files.export_tapes(opened, names or (), write))
        tape_files.check_done(problems)

    def import_files(
        self,
        files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The files; - is standard input.")],
        name: Annotated[
            str | None, typer.Option("--as", metavar="NAME", help="The tape; by default the file names it.")
        ] = None,
        session: Annotated[
            list[str] | None,
            typer.Option(metavar="ID", help="A session that files of bub 0.6 may be of; may be given several times."),
        ] = None,
        skip_damaged: Annotated[bool, typer.Option("--skip-damaged", help="Leave damaged lines out.")] = False,
        as_json: _Json = False,
    ) -> None:
        """Add what files hold to tapes, each entry once."""
        if name is not None and not name.strip():
            fail("expected the name of a tape, got none - --as", EXIT_USAGE)
        if name is not None and len(files) > 1:
            fail("expected one file with --as, got several", EXIT_USAGE)
        with self._ending(), tape_input.sources(files) as found:
            problems = self._do(
                lambda opened: tape_files.import_files(
                    opened, found, name=name, sessions=session or (), skip_damaged=skip_damaged, as_json=as_json
                )
            )
        tape_files.check_done(problems)

    # ------------------------------------------------------------------------------------------------------- upkeep

    def archive(self, name: _Name, yes: _Yes = False, as_json: _Json = False) -> None:
        """Keep the entries of a tape under another name."""
        self._empty(name, archive=True, yes=yes, as_json=as_json)

    def reset(self, name: _Name, yes: _Yes = False, as_json: _Json = False) -> None:
        """Remove all entries of a tape and its sidecars."""
        self._empty(name, archive=False, yes=yes, as_json=as_json)

    def compact(self) -> None:
        """Give back the space of what was removed."""
        self._do(tape_upkeep.compact_store)

    def verify(self, as_json: _Json = False) -> None:
        """Read every entry, and tell what is damaged."""
        self._do(lambda opened: tape_upkeep.verify_store(opened, as_json=as_json))

    def _empty(self, name: str, *, archive: bool, yes: bool, as_json: bool) -> None:
        if not yes:  # asked while no store is open, and no event loop takes the interruption for itself
            tape_upkeep.check_somebody_can_be_asked()
            tape_upkeep.check_agreed(self._do(lambda opened: tape_upkeep.what_goes(opened, name, archive=archive)))
        self._do(lambda opened: tape_upkeep.empty_tape(opened, name, archive=archive, as_json=as_json))

    def _do(self, work: Callable[[OpenStore], Awaitable[T]]) -> T:
        """Do something on the store."""
        with self._ending():
            return anyio.run(with_store, self._framework, work)

    @contextmanager
    def _ending(self) -> Generator[None, None, None]:
        """End with a line and a code when a block fails."""
        try:
            yield
        except KeyboardInterrupt:
            fail("interrupted", EXIT_INTERRUPTED)
        except (typer.Exit, OSError):  # the latter is of standard output: typer is quiet when its reader has gone
            raise
        except BubError as error:
            fail(one_line(str(error)), EXIT_FAILED)
        except Exception as error:
            logger.debug("cli.failed", exc_info=error)
            line = failure_line(error, plugin_folders(self._framework.hook_report()))
            fail(f"the tape store failed: {line}. BUB_LOG_LEVEL=DEBUG shows the traceback.", EXIT_FAILED)


def _query(filters: TapeFilters) -> TapeQuery:
    try:
        return TapeQuery(tape="any", **filters)
    except TapeError:  # all else was looked at
        fail("expected a span that ends after it starts - --since and --until", EXIT_USAGE)


def _most(limit: int) -> int | None:
    """The limit that an option says, as stores take it."""
    return limit if 0 < limit <= MAX_COUNT else None


def _check_unicode(text: str, option: str) -> None:
    if not is_unicode(text):
        fail(f"expected a part of the name of a tape, got {text!r} - {option}", EXIT_USAGE)


def _check_date(text: str | None, option: str) -> None:
    try:
        TapeQuery(tape="any", dates=(text, None))
    except TapeError:
        fail(f"expected a day as 2026-03-01 or a moment as 2026-03-01T08:00, got {text!r} - {option}", EXIT_USAGE)

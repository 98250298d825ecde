"""The `bub` script: makes the framework, loads the plugins, runs the command line."""

import gc
import io
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Final, NoReturn

from typing_extensions import override

import bub
from bub.builtin.printing import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_READER_GONE, EXIT_USAGE
from bub.builtin.program_end import EXIT_SIGNALLED, give_output_up, leave_without_threads
from bub.framework.failure_line import failure_line, one_line, plugin_folders, visible

logger: Final = logging.getLogger("bub")

NO_TYPER: Final = 'the command line needs an extra. Run: python -m pip install "bub[app]"'
HOW_TO_GO_ON: Final = "BUB_DISABLED_PLUGINS=NAME leaves a plugin out; BUB_LOG_LEVEL=DEBUG shows the traceback."


def main() -> None:
    """Run the command line application; exits with its code.

    Python waits at its end for every thread, such as one in which a tool runs that was given up on. Who interrupts the
    program does not want to wait: then it ends without those that take longer than two seconds. Nor is there anything
    to be told when nobody reads the output any more, as in `bub hooks | head -1`.
    """
    before = frozenset(threading.enumerate())
    try:
        _run()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # the command line has caught it
            give_output_up()
            ended.code = EXIT_READER_GONE
        if isinstance(ended.code, int) and ended.code > EXIT_SIGNALLED:
            leave_without_threads(before, ended.code)
        raise


def _run() -> None:
    if sys.stdout is None:
        _end("there is no standard output to write to", EXIT_FAILED)
    _let_any_text_out()
    wanted = os.environ.get("BUB_LOG_LEVEL", "").upper()
    level = wanted if wanted in logging.getLevelNamesMapping() else "WARNING"
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("bub: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    try:
        gc.disable()  # what is made here lives as long as the program: the collector would look through it for nothing
        try:
            command = _command()
        finally:
            gc.freeze()
            gc.enable()
        command()
    except KeyboardInterrupt:
        _end("interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        logger.debug("cli.failed", exc_info=error)
        give_output_up()
        _end(failure_line(error), EXIT_FAILED)


class _OneLine(logging.Formatter):
    """A record in one line, its traceback below; no control character reaches the terminal."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))

    @override
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def _command() -> Callable[[], object]:
    """The root command with those of all plugins."""
    try:
        from typer.main import get_command
    except ImportError:
        _end(NO_TYPER, EXIT_USAGE)
    try:
        framework = bub.BubFramework()
    except OSError as error:
        logger.debug("cli.failed", exc_info=error)
        _end(f"cannot work in the current folder: {failure_line(error)}", EXIT_FAILED)
    try:
        framework.load_hooks()
        try:
            return get_command(framework.create_cli_app())
        except Exception as error:
            logger.debug("cli.failed", exc_info=error)
            return get_command(framework.create_cli_app(build=True))  # without those whose commands cannot be built
    except Exception as error:
        logger.debug("cli.failed", exc_info=error)
        line = failure_line(error, plugin_folders(framework.hook_report()))
        _end(f"cannot make the command line: {line}. {HOW_TO_GO_ON}", EXIT_FAILED)


def _let_any_text_out() -> None:
    """Have standard output write as escapes what its encoding does not have: half a surrogate pair is in none."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
        stream.reconfigure(errors="backslashreplace")


def _end(text: str, code: int) -> NoReturn:
    if sys.stderr is not None:
        sys.stderr.write(f"bub: {text}\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()

"""The `bub` script: makes the framework, loads the plugins, runs the command line."""

import gc
import io
import logging
import os
import sys
from collections.abc import Callable
from typing import Final, NoReturn

import bub
from bub.framework.failure_line import failure_line, plugin_folders

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

NO_TYPER: Final = 'the command line needs an extra. Run: python -m pip install "bub[app]"'
HOW_TO_GO_ON: Final = "BUB_DISABLED_PLUGINS=NAME leaves a plugin out; BUB_LOG_LEVEL=DEBUG shows the traceback."


def main() -> None:
    """Run the command line application; exits with its code."""
    _let_any_text_out()
    wanted = os.environ.get("BUB_LOG_LEVEL", "").upper()
    level = wanted if wanted in logging.getLevelNamesMapping() else "WARNING"
    logging.basicConfig(level=level, format="bub: %(message)s")
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


def _command() -> Callable[[], object]:
    """The root command with those of all plugins."""
    try:
        from typer.main import get_command
    except ImportError:
        _end(NO_TYPER, EXIT_USAGE)
    framework = bub.BubFramework()
    try:
        framework.load_hooks()
        return get_command(framework.create_cli_app())
    except Exception as error:
        logging.getLogger("bub").debug("cli.failed", exc_info=error)
        line = failure_line(error, plugin_folders(framework.hook_report()))
        _end(f"cannot make the command line: {line}. {HOW_TO_GO_ON}", EXIT_FAILED)


def _let_any_text_out() -> None:
    """Have standard output write as escapes what its encoding does not have, where that would be an error."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or stream.encoding != "utf-8"):
        stream.reconfigure(errors="backslashreplace")


def _end(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"bub: {text}\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()

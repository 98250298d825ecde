"""The `bub` script: makes the framework, loads the plugins, runs the command line."""

import logging
import os
import sys
from importlib.util import find_spec

from bub.framework.framework import BubFramework


def main() -> None:
    """Run the command line application; exits with its code."""
    if find_spec("typer") is None:
        sys.stderr.write("bub: the command line needs an extra. Run: python -m pip install 'bub[app]'\n")
        raise SystemExit(2)
    level = os.environ.get("BUB_LOG_LEVEL", "WARNING").upper()
    logging.basicConfig(level=level if level in logging.getLevelNamesMapping() else "WARNING", format="bub: %(message)s")
    framework = BubFramework()
    framework.load_hooks()
    framework.create_cli_app()()


if __name__ == "__main__":
    main()

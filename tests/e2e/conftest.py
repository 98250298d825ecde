"""What the end-to-end tests share: a scripted provider, a local model, and the command `bub` as a user has it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from bub.builtin.local_model import LocalModelClient
from tests.e2e.programs import Bub, Provider, running_provider

if "BUB_E2E" not in os.environ:  # the session `e2e` sets it: only there is all that they need
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Republic has no other."""
    return "asyncio"


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    with running_provider(Path(os.environ["BUB_AIMOCK"])) as found:
        yield found


@pytest.fixture(scope="session")
def home() -> Path:
    """The data folder; the session has put the default weights into it."""
    found = Path(os.environ["BUB_HOME"])
    assert list(found.glob("models/*.gguf"))
    return found


@pytest.fixture
async def local(home: Path) -> AsyncGenerator[LocalModelClient, None]:
    async with LocalModelClient(None, folder=home) as client:
        yield client


@pytest.fixture
def bub(tmp_path: Path, home: Path) -> Bub:
    return Bub(tmp_path, home)

"""Fixtures of all tests: async tests run on asyncio and on trio, and nothing is kept in the user's data folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: object = request.param
    assert isinstance(backend, str)
    return backend


@pytest.fixture(scope="session")
def shared_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bub")


@pytest.fixture(autouse=True)
def no_data_folder_of_the_user(shared_data_folder: Path) -> Iterator[None]:
    """Other than `monkeypatch`, which a test may undo."""
    is_chosen = "BUB_HOME" in os.environ
    if not is_chosen:
        os.environ["BUB_HOME"] = str(shared_data_folder)
    yield
    if not is_chosen:
        os.environ.pop("BUB_HOME", None)

"""Environments are told by their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest

from bub.environment import Environment, Process, is_environment


class Nowhere:
    """The smallest environment."""

    async def spawn(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        raise OSError("nothing runs here")

    async def read_text(self, path: str | Path) -> str:
        return ""

    async def read_bytes(self, path: str | Path) -> bytes:
        return b""

    async def write_text(self, path: str | Path, text: str) -> None: ...

    def resolve_path(self, path: str | Path) -> Path:
        return Path(path)

    async def close(self) -> None: ...


MEMBERS = ["spawn", "read_text", "read_bytes", "write_text", "resolve_path", "close"]


class AnswersAll:
    def __getattr__(self, name: str) -> object:
        return lambda *args: None


def test_all_members_make_an_environment() -> None:
    here: Environment = Nowhere()
    assert is_environment(here)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("instead", [None, 3])
def test_a_member_that_cannot_be_called_makes_none(member: str, instead: object) -> None:
    assert not is_environment(type("Part", (Nowhere,), {member: instead})())


@pytest.mark.parametrize("member", MEMBERS)
def test_a_missing_member_makes_none(member: str) -> None:
    rest = {name: getattr(Nowhere, name) for name in MEMBERS if name != member}
    assert not is_environment(type("Part", (), rest)())


@pytest.mark.parametrize(
    "value",
    [
        None,
        "production",
        Nowhere,  # the class, not an instance
        AnswersAll(),
        Mock(),
        MagicMock(),
        SimpleNamespace(**dict.fromkeys(MEMBERS, print)),
    ],
)
def test_phantoms_are_none(value: object) -> None:
    assert not is_environment(value)

"""A file that is replaced as a whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bub.builtin.replacement import Replacement


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with Replacement(file) as new:
        new.file.write(b"new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def fail() -> None:
        with Replacement(file) as new:
            new.file.write(b"half")
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_beside_it_are_left_alone_and_a_link_stays_a_link(tmp_path: Path) -> None:
    for name in ("file", "file.new", "file.tmp"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("file")
    with Replacement(tmp_path / "link") as new:
        new.file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["new", "file.new", "file.tmp", "new"]


@pytest.mark.skipif(os.name == "nt", reason="rights of POSIX")
@pytest.mark.parametrize(("keep", "expected"), [(True, 0o640), (False, 0o600)])
def test_the_rights_are_those_of_the_old_file_or_those_that_are_asked_for(
    keep: bool, expected: int, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(0o640)
    with Replacement(file, mode=0o600, keep=keep) as new:
        new.file.write(b"new")
    assert stat.S_IMODE(file.stat().st_mode) == expected

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bub.errors import TapeError
from bub.tape.sidecar import TapeSidecar, sidecar_tape_name, split_sidecar_name
from tests.doubles.tapes import Notes


def test_name_of_the_tape() -> None:
    sidecar: TapeSidecar = Notes()
    name = sidecar_tape_name("customer-42", sidecar.name)
    assert name == "customer-42__sidecar__notes"
    assert split_sidecar_name(name) == ("customer-42", "notes")


@pytest.mark.parametrize(("main", "sidecar"), [("", "a"), ("a", ""), (" ", "a"), ("a", "\t")])
def test_a_blank_name_is_refused(main: str, sidecar: str) -> None:
    with pytest.raises(TapeError, match=r"^expected the name of a (main tape|sidecar), got .* - sidecar_tape_name$"):
        sidecar_tape_name(main, sidecar)


@pytest.mark.parametrize(
    ("main", "sidecar"),
    [
        ("a__sidecar__b", "c"),
        ("a", "b__sidecar__c"),
        ("a__sidecar", "b"),
        ("a", "sidecar__b"),
    ],
)
def test_names_that_could_not_be_told_apart_are_refused(main: str, sidecar: str) -> None:
    with pytest.raises(TapeError, match="__sidecar__"):
        sidecar_tape_name(main, sidecar)


PIECES = st.lists(st.sampled_from(["_", "__", "sidecar", "a", "b", "/"]), min_size=1, max_size=5).map("".join)


@given(PIECES, PIECES)
def test_an_accepted_pair_comes_back(main: str, sidecar: str) -> None:
    try:
        name = sidecar_tape_name(main, sidecar)
    except TapeError:
        assume(False)
        return
    assert split_sidecar_name(name) == (main, sidecar)


@pytest.mark.parametrize("name", ["main", "", "__sidecar__", "a__sidecar__", "__sidecar__b"])
def test_the_name_of_a_main_tape_has_no_parts(name: str) -> None:
    assert split_sidecar_name(name) is None

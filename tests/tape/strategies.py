"""Random tapes and questions, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from bub.tape.entry import TapeEntry
from bub.tape.store import TapeFilters
from bub.testing.tape_model import DAYS, KINDS, NAMES, RUNS

dates = st.builds("{}T{:02}:00:00.000000+00:00".format, st.sampled_from(DAYS), st.integers(0, 23))
metas: st.SearchStrategy[dict[str, str]] = st.sampled_from([{}, *({"run_id": run} for run in RUNS)])


def _anchor(name: str | None, meta: dict[str, str], date: str) -> TapeEntry:
    return TapeEntry(0, "anchor", {"name": name, "state": {}}, meta, date)


def _note(kind: str, word: int, meta: dict[str, str], date: str) -> TapeEntry:
    return TapeEntry(0, kind, {"text": f"word{word} more"}, meta, date)


anchors = st.builds(_anchor, st.sampled_from([*NAMES, *NAMES, None]), metas, dates)
notes = st.builds(_note, st.sampled_from(KINDS), st.integers(0, 3), metas, dates)
batches = st.lists(notes | notes | anchors, max_size=8)


@st.composite
def filters(draw: st.DrawFn) -> TapeFilters:
    made: TapeFilters = {"newest_first": draw(st.booleans()), "offset": draw(st.just(0) | st.integers(0, 5))}
    made["kinds"] = draw(st.just(()) | st.lists(st.sampled_from((*KINDS, "anchor")), min_size=1, max_size=2))
    made["run_id"] = draw(st.none() | st.sampled_from(RUNS))
    made["limit"] = draw(st.none() | st.integers(0, 6))
    made["text"] = draw(st.none() | st.sampled_from(["word1", "MORE word2", "absent"]))
    days = sorted(draw(st.lists(st.sampled_from(DAYS), min_size=2, max_size=2)))
    made["dates"] = draw(st.sampled_from([None, (days[0], days[1]), (days[0], None), (None, days[1])]))
    kind = draw(st.sampled_from(["none", "last", "after", "between"]))
    if kind == "last":
        made["last_anchor"] = True
    elif kind == "after":
        made["after_anchor"] = draw(st.sampled_from(NAMES))
    elif kind == "between":
        made["between"] = (draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES)))
    return made

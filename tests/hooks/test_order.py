"""The call order, as a property: any plugins, registered and unregistered in any sequence, against a small oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, permutations, product
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bub.errors import HookOrderError
from bub.hooks.declaration import Band
from bub.hooks.dispatch import table_of
from bub.hooks.markers import MARK, Mark
from tests.doubles.hook_plugins import Small, implementing_all

NAMES = tuple("abcdefgh")
PRIORITY: dict[Band, dict[str, bool]] = {0: {"tryfirst": True}, 1: {}, 2: {"trylast": True}}


class Wish(NamedTuple):
    """What one plugin asks for."""

    name: str
    band: Band = 1
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def precedes(one: Wish, other: Wish) -> bool:
    return one.name != other.name and (other.name in one.before or one.name in other.after)


def banded(registered: Sequence[Wish]) -> list[Wish]:
    """tryfirst, plain, trylast; later registered first."""
    return [wish for band in (0, 1, 2) for wish in reversed(registered) if wish.band == band]


def earliest(rest: Sequence[Wish]) -> list[Wish] | None:
    """The lexicographically earliest order, by band position, that keeps every wish; None when there is none."""
    if not rest:
        return []
    for index, wish in enumerate(rest):
        others = [*rest[:index], *rest[index + 1 :]]
        if not any(precedes(other, wish) for other in others):
            found = earliest(others)
            if found is not None:
                return [wish, *found]
    return None


def brute_force(registered: Sequence[Wish]) -> list[Wish] | None:
    """The same by trying every permutation; they come in lexicographic order."""
    for order in permutations(banded(registered)):
        if not any(precedes(later, sooner) for index, sooner in enumerate(order) for later in order[index + 1 :]):
            return list(order)
    return None


def register(small: Small, wish: Wish, *, padding: int = 0) -> None:
    """A plugin whose implementation of `gather` is one of several, so that serial numbers drift."""
    others = ["observed", "collected", "ask", "ask_now"][:padding]
    plugin = implementing_all(
        {**{hook: lambda self: None for hook in others}, "gather": _named(wish.name)},
        **PRIORITY[wish.band],
        before=wish.before,
        after=wish.after,
    )
    small.registry.register(plugin, name=wish.name)


def _named(name: str) -> Callable[[object], str]:
    def gather(self: object) -> str:
        return name

    return gather


def order(small: Small) -> list[str]:
    return [implementation.plugin for implementation in table_of(small.hooks).bound("gather")]


def called(small: Small) -> list[object]:
    call = table_of(small.hooks).function("gather", "run_all", is_async=False)
    found: list[object] = call(question="?")
    return found


def state_of(small: Small) -> object:
    return (
        {name: table_of(small.hooks).bound(name) for name in table_of(small.hooks).specs},
        {name: small.registry.group(spec.group) for name, spec in table_of(small.hooks).specs.items()},
        dict(small.registry.registrations),
    )


def refused(small: Small, wish: Wish, registered: Sequence[Wish], *, padding: int = 0) -> None:
    """The registration would close a cycle: it is refused, names a cycle that is one, and changes nothing."""
    before = state_of(small)
    with pytest.raises(HookOrderError) as caught:
        register(small, wish, padding=padding)
    assert caught.value.hook in {"gather", "observed", "collected", "ask", "ask_now"}
    cycle = caught.value.cycle
    wishes = {known.name: known for known in (*registered, wish)}
    assert len(cycle) > 2
    assert cycle[0] == cycle[-1]
    assert len(set(cycle)) == len(cycle) - 1
    assert all(precedes(wishes[one], wishes[other]) for one, other in pairwise(cycle))
    assert str(caught.value) == (
        f"cannot order hook {caught.value.hook!r}: {' before '.join(cycle)}. Drop one of the before= or after=."
    )
    assert state_of(small) == before


class Registrations(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.small = Small()
        self.registered: list[Wish] = []

    @rule(
        name=st.sampled_from(NAMES),
        band=st.sampled_from((0, 1, 1, 1, 2)),
        before=st.lists(st.sampled_from((*NAMES, "absent")), max_size=2, unique=True),
        after=st.lists(st.sampled_from((*NAMES, "absent")), max_size=2, unique=True),
        padding=st.integers(0, 4),
    )
    def register(self, name: str, band: Band, before: list[str], after: list[str], padding: int) -> None:
        if name in {wish.name for wish in self.registered}:
            return
        wish = Wish(name, band, tuple(before), tuple(after))
        if earliest(banded([*self.registered, wish])) is None:
            refused(self.small, wish, self.registered, padding=padding)
        else:
            register(self.small, wish, padding=padding)
            self.registered.append(wish)

    @precondition(lambda self: bool(self.registered))
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.registered))
        self.small.registry.unregister(gone.name)
        self.registered.remove(gone)

    @invariant()
    def the_order_is_the_earliest_that_keeps_every_wish(self) -> None:
        expected = earliest(banded(self.registered))
        assert expected is not None
        assert order(self.small) == [wish.name for wish in expected]

    @invariant()
    def the_calls_follow_the_order(self) -> None:
        assert called(self.small) == order(self.small)


TestRegistrations = Registrations.TestCase
TestRegistrations.settings = settings(
    max_examples=150, stateful_step_count=24, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_the_oracle_agrees_with_trying_every_permutation() -> None:
    wishes = [
        Wish(name, band, before, after)
        for name, (band, before, after) in zip(
            NAMES[:5],
            product((0, 1, 2), ((), ("a",), ("d", "e")), ((), ("b",), ("c", "a"))),
            strict=False,
        )
    ]
    for some in permutations(wishes, 4):
        assert earliest(banded(some)) == brute_force(some)


# S10
@pytest.mark.parametrize("bands", list(product((0, 1, 2), repeat=4)))
def test_every_mix_of_bands_runs_tryfirst_plain_trylast_and_the_later_first(bands: tuple[Band, ...]) -> None:
    small = Small()
    wishes = [Wish(name, band) for name, band in zip(NAMES, bands, strict=False)]
    for wish in wishes:
        register(small, wish)
    assert order(small) == [wish.name for wish in banded(wishes)]


def test_the_number_of_implementations_of_a_plugin_has_no_part_in_the_order() -> None:
    small = Small()
    register(small, Wish("many"), padding=4)
    register(small, Wish("one"))
    assert order(small) == ["one", "many"]


def test_of_two_implementations_in_one_plugin_the_later_written_runs_first() -> None:
    class Plugin:
        def one(self) -> str:
            return "one"

        def two(self) -> str:
            return "two"

    for function in (Plugin.one, Plugin.two):
        setattr(function, MARK, Mark("gather", True, {}))
    small = Small()
    small.registry.register(Plugin(), name="plugin")
    assert called(small) == ["two", "one"]


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ([Wish("a", 2), Wish("b", 0, after=("a",))], "ab"),  # a wish beats the bands
        ([Wish("a", 2, before=("b",)), Wish("b", 0)], "ab"),
        ([Wish("a", after=("absent",)), Wish("b", before=("absent",))], "ba"),  # absent names bind nothing
        ([Wish("a", before=("a",)), Wish("b", after=("b",))], "ba"),  # nor does one's own
        ([Wish("a"), Wish("b"), Wish("c", after=("a",))], "bac"),  # what is free stays where its band puts it
        ([Wish("a"), Wish("b"), Wish("c", before=("a",), after=("b",))], "bca"),
    ],
)
# S11
def test_wishes(wishes: list[Wish], expected: str) -> None:
    small = Small()
    for wish in wishes:
        register(small, wish)
    assert order(small) == list(expected)


def test_a_name_that_was_absent_binds_as_soon_as_it_comes() -> None:
    small = Small()
    register(small, Wish("a", before=("c",)))
    register(small, Wish("b"))
    assert order(small) == ["b", "a"]
    register(small, Wish("c"))
    assert order(small) == ["b", "a", "c"]
    small.registry.unregister("a")
    assert order(small) == ["c", "b"]


def test_a_cycle_is_refused_by_name_and_leaves_everything_as_it_was() -> None:
    small = Small()
    wishes = [Wish("a", before=("b",)), Wish("b", before=("c",)), Wish("d")]
    for wish in wishes:
        register(small, wish)
    with pytest.raises(HookOrderError) as caught:
        register(small, Wish("c", before=("a",)))
    assert caught.value.hook == "gather"
    assert sorted(set(caught.value.cycle)) == ["a", "b", "c"]
    refused(small, Wish("c", before=("a",)), wishes)
    assert called(small) == order(small) == ["d", "a", "b"]
    register(small, Wish("c"))  # the name is free
    assert order(small) == ["d", "a", "b", "c"]


def test_one_order_stands_over_the_hooks_of_a_group() -> None:
    small = Small()
    small.add("one", "paired_one", lambda self: "one", tryfirst=True)
    small.add("two", "paired_two", lambda self: "two")
    small.add("three", "paired_one", lambda self: "three", after=("two",))
    assert [i.plugin for i in small.registry.group("pair")] == ["one", "two", "three"]
    assert [i.plugin for i in table_of(small.hooks).bound("paired_one")] == ["one", "three"]
    assert [i.plugin for i in table_of(small.hooks).bound("paired_two")] == ["two"]
    assert small.registry.group("unknown") == ()

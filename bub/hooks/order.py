"""The order in which the implementations of a hook are called."""

import heapq
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from bub.errors import HookOrderError
from bub.hooks.declaration import Implementation


def ordered(hook: str, implementations: Iterable[Implementation]) -> list[Implementation]:
    """Implementations in call order.

    tryfirst before plain before trylast, and in each of these bands the later registered first. `before=` and `after=`
    beat the bands: of all orders that respect them, the one that keeps closest to the bands from its front on.

    Args:
        hook: Names the hook in an error.
        implementations: In any order.

    Raises:
        HookOrderError: `before=` and `after=` close a cycle.
    """
    banded = sorted(implementations, key=_priority)
    if not any(item.before or item.after for item in banded):
        return banded
    followers = _followers(banded)
    waiting = [0] * len(banded)
    for later in followers.values():
        for index in later:
            waiting[index] += 1
    ready = [index for index, count in enumerate(waiting) if not count]
    placed: list[int] = []
    while ready:  # always the earliest, by band order, of those that nothing has to precede any more
        index = heapq.heappop(ready)
        placed.append(index)
        for follower in followers[index]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, follower)
    if len(placed) < len(banded):
        raise HookOrderError(hook, _cycle(banded, followers, stuck=set(range(len(banded))).difference(placed)))
    return [banded[index] for index in placed]


def extended(
    hook: str, known: Sequence[Implementation], added: Sequence[Implementation], *, wishes: bool
) -> list[Implementation]:
    """Implementations in call order with others added.

    Args:
        hook: Names the hook in an error.
        known: In call order.
        added: In any order.
        wishes: Whether a known one has a `before=` or `after=`. Where none has, the new ones are only put in place.

    Raises:
        HookOrderError: `before=` and `after=` close a cycle.
    """
    if wishes or any(item.before or item.after for item in added):
        return ordered(hook, (*known, *added))
    every = list(known)
    for item in added:
        insort(every, item, key=_priority)
    return every


def _priority(item: Implementation) -> tuple[int, int]:
    return item.band, -item.serial


def _followers(banded: Sequence[Implementation]) -> dict[int, set[int]]:
    """For each implementation, by index, those that must come later. Names of absent plugins bind nothing."""
    followers: dict[int, set[int]] = {index: set() for index in range(len(banded))}
    of_plugin: defaultdict[str, list[int]] = defaultdict(list)
    for index, item in enumerate(banded):
        of_plugin[item.plugin].append(index)
    for index, item in enumerate(banded):
        for name in item.before:
            if name != item.plugin:
                followers[index].update(of_plugin.get(name, ()))
        for name in item.after:
            if name != item.plugin:
                for other in of_plugin.get(name, ()):
                    followers[other].add(index)
    return followers


def _cycle(banded: Sequence[Implementation], followers: Mapping[int, set[int]], stuck: set[int]) -> list[str]:
    """The plugin names along one cycle, the first again at the end.

    Every stuck implementation has a stuck one before it, so walking backwards must come round.
    """
    walk = [min(stuck)]
    while True:
        earlier = min(index for index in stuck if walk[-1] in followers[index])
        if earlier in walk:
            around = [*walk[walk.index(earlier) :], earlier]
            return [banded[index].plugin for index in reversed(around)]
        walk.append(earlier)

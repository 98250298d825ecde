"""The order in which the implementations of a hook are called."""

import heapq
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
    banded = sorted(implementations, key=lambda item: (item.band, -item.serial))
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


def _followers(banded: Sequence[Implementation]) -> dict[int, set[int]]:
    """For each implementation, by index, those that must come later. Names of absent plugins bind nothing."""
    followers: dict[int, set[int]] = {index: set() for index in range(len(banded))}
    for index, item in enumerate(banded):
        for other, rival in enumerate(banded):
            if rival.plugin == item.plugin:
                continue
            if rival.plugin in item.before:
                followers[index].add(other)
            if rival.plugin in item.after:
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

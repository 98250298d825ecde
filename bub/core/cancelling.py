"""Telling a cancellation of the present task from one that a piece of code brought along."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bub.lazy import LazyModule

if TYPE_CHECKING:
    import asyncio

    import anyio
else:  # the framework imports this, and a command line that only shows its help needs none of them
    anyio = LazyModule("anyio")
    asyncio = LazyModule("asyncio")


def is_being_cancelled() -> bool:
    """Whether the present task is being cancelled: by a scope around it, or by itself.

    On asyncio whoever awaits a task that somebody else has cancelled gets its `CancelledError`, and a scope that has
    ended may have left one behind: both look like a cancellation, and nobody wants the present task to end. On trio
    there is neither.
    """
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio
        return False
    return task is not None and task.cancelling() > 0

"""Stopping what a session does, from outside of its turns or from inside of one."""

from __future__ import annotations

from bub.envelope import Envelope
from bub.framework.framework import BubFramework


async def stop_turns(framework: BubFramework, message: Envelope) -> bool:
    """Cancel the turns of the session that a message belongs to, begun or not; whether there were any.

    Messages that wait are processed afterwards. It returns when the turns are over, the caller's own apart: that is
    cancelled, too. Without a gateway there is nothing to stop.

    Args:
        framework: Whose gateway runs the turns.
        message: A message as the channel hands it on; it is not processed.

    Raises:
        Exception: What a `resolve_session` hook raised.

    Cancellation:
        Ends the waiting only.
    """
    router = framework.get_router()
    if router is None:
        return False
    session_id = await framework.resolve_session(message)
    is_running = router.snapshot(session_id).running_count > 0
    await router.quit(session_id)
    return is_running

"""A run: steps until the model asks for nothing more, with what is emitted and recorded around them."""

from __future__ import annotations

import uuid
from collections.abc import Coroutine, Sequence
from time import perf_counter_ns
from typing import Any, Final

import anyio

from bub.core.events import MessagesPending, RunFinished, RunStarted, RunStatus, StepFinished, StepStarted, StepStatus
from bub.core.recorder import exchange_entries
from bub.core.step import Exchange, RunParts, Step
from bub.errors import BubError, ModelError
from bub.messages import republic
from bub.prompt import UserContent
from bub.streaming import StepEnded, StreamFailed, StreamState

CLOSING_GRACE: Final = 30.0
"""Seconds that the end of a run has for its events when the run is being cancelled."""


class Run:
    """One run of an agent.

    Args:
        parts: What its steps have in common.
        prompt: What the user asks; None lets the conversation go on by itself.
        max_steps: How many steps it may take; None for one alone, whatever the model asks for in it.
        metadata: Facts about the run, for events and record.
    """

    def __init__(
        self, parts: RunParts, prompt: Sequence[UserContent] | None, *, max_steps: int | None, metadata: dict[str, Any]
    ) -> None:
        self._parts: Final = parts
        self._prompt: Final = None if prompt is None else list(prompt)
        self._max_steps: Final = max_steps
        self._metadata: Final = metadata
        self._steps = 0
        self._carried: list[list[UserContent]] = []
        self._prompt_kept = prompt is None
        self._handed_off = False
        self._failure: Exception | None = None

    async def produce(self) -> None:
        """Take the steps; the stream gets the events.

        Raises:
            Exception: What ended the run; everything is recorded by then.
        """
        started = perf_counter_ns()
        error: BaseException | None = None
        try:
            await self._emit_started()
            await self._take_steps()
        except BaseException as raised:
            error = raised
            raise
        finally:
            await self._after(error, self._finish(error, (perf_counter_ns() - started) // 1_000_000))

    async def _emit_started(self) -> None:
        parts = self._parts
        await parts.events.emit(
            RunStarted(
                state=parts.tape.context.state,
                tape=parts.tape,
                run_id=parts.run_id,
                prompt=self._prompt or [],
                model=parts.spec,
                metadata=self._metadata,
            )
        )

    async def _take_steps(self) -> None:
        prompt: Sequence[UserContent] | None = self._prompt
        while True:
            self._steps += 1
            finished = await self._take_step(prompt)
            if finished.status == "auto_handoff":
                prompt = self._prompt
            elif finished.status == "continue":
                prompt = None if finished.next_prompt is None else [finished.next_prompt]
            else:
                return

    async def _take_step(self, prompt: Sequence[UserContent] | None) -> StepFinished:
        """One step, with the events around it."""
        parts = self._parts
        started = perf_counter_ns()
        step = Step(parts, self._steps, self._carried)
        finished = StepFinished(
            state=parts.tape.context.state,
            tape=parts.tape,
            step=self._steps,
            prompt=None if prompt is None else list(prompt),
            stream=StreamState(),
            status="ok",
            elapsed_ms=0,
            run_id=parts.run_id,
        )
        try:
            await parts.events.emit(
                StepStarted(
                    state=finished.state, tape=parts.tape, step=self._steps, prompt=finished.prompt, run_id=parts.run_id
                )
            )
            exchange = await step.run(prompt, may_hand_off=not self._handed_off)
            self._settle(step)
            finished.status = await self._status_after(exchange)
        except BaseException as error:
            self._settle(step)
            finished.error = error if isinstance(error, Exception) else None
            if step.overflowed:
                await self._hand_off(error)
                finished.status = "auto_handoff"
            else:
                finished.status = "cancelled" if finished.error is None else "error"
                await self._after(error, self._end_step(finished, step, started))
                raise
        await self._end_step(finished, step, started)
        return finished

    def _settle(self, step: Step) -> None:
        """Note which user messages are on the tape now, and which still have to reach the model."""
        self._carried = [] if step.recorded else step.taken
        self._prompt_kept = self._prompt_kept or step.recorded

    async def _status_after(self, exchange: Exchange) -> StepStatus:
        """Whether another step follows; takes the messages that came during this one."""
        parts = self._parts
        if self._max_steps is None:
            return "ok"
        last = self._steps >= self._max_steps
        if exchange.calls:
            if not last:
                return "continue"
            text = f"expected an answer within {self._max_steps} steps, got tool calls in the last one"
            self._failure = ModelError(text)
            parts.stream.put_nowait(StreamFailed("model", text))
            return "ok"
        if last:
            return "ok"
        pending = MessagesPending(
            state=parts.tape.context.state, tape=parts.tape, step=self._steps, at="end", run_id=parts.run_id
        )
        await parts.events.emit(pending)
        self._carried = list(pending.messages)
        return "continue" if self._carried else "ok"

    async def _hand_off(self, error: BaseException) -> None:
        """Start on an empty context, once in a run, because the request was too long for the model."""
        self._handed_off = True
        facts = {"reason": "context_length", "error": str(error)}
        await self._parts.tape.handoff("auto_handoff", facts, run_id=self._parts.run_id)

    async def _end_step(self, finished: StepFinished, step: Step, started_ns: int) -> None:
        exchange = step.exchange
        text, usage = ("", None) if exchange is None else (exchange.text, exchange.usage)
        finished.elapsed_ms = (perf_counter_ns() - started_ns) // 1_000_000
        finished.stream = StreamState(_as_bub_error(finished.error), usage)
        ok = finished.status in ("ok", "continue")
        self._parts.stream.put_nowait(StepEnded(finished.step, ok, text))
        await self._parts.events.emit(finished)

    async def _finish(self, error: BaseException | None, elapsed_ms: int) -> None:
        """Keep the prompt if no step did, and say that the run is over."""
        parts = self._parts
        if not self._prompt_kept and self._prompt is not None:
            kept = exchange_entries([republic.user(*self._prompt)], {"run_id": parts.run_id})
            await parts.tape.append(*kept)
        told = error if isinstance(error, Exception) else self._failure
        status: RunStatus = "cancelled" if error is not None and told is None else "ok" if told is None else "error"
        await parts.events.emit(
            RunFinished(
                state=parts.tape.context.state,
                tape=parts.tape,
                run_id=parts.run_id,
                status=status,
                steps=self._steps,
                elapsed_ms=elapsed_ms,
                error=told,
                usage=parts.stream.usage,
                undelivered=self._carried,
            )
        )

    async def _after(self, error: BaseException | None, ending: Coroutine[Any, Any, None]) -> None:
        """Await what has to happen at an end, shielded; where an error ended it, a second one becomes a note of that."""
        with anyio.move_on_after(CLOSING_GRACE, shield=True):
            try:
                await ending
            except Exception as second:
                if error is None:
                    raise
                error.add_note(f"then a handler failed too: {type(second).__qualname__}: {second}")


def _as_bub_error(error: Exception | None) -> BubError | None:
    return error if error is None or isinstance(error, BubError) else ModelError(f"{type(error).__qualname__}: {error}")

"""A run: steps until the model asks for nothing more, with what is emitted and recorded around them."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, Final

import anyio

from bub.core.events import RunFinished, RunStarted, RunStatus, StepFinished, StepStarted, StepStatus
from bub.core.exchange import Exchange, summary_of
from bub.core.results import error_text
from bub.core.run_stream import RunEnded
from bub.core.step import RunParts, Step, take_messages
from bub.errors import BubError, ExitError, ModelError
from bub.messages import message_to_dict, republic
from bub.prompt import UserContent
from bub.streaming import StepEnded, StreamFailed, StreamState, Usage
from bub.tape.entry import MESSAGE


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
        self._complete = 0
        self._done: Final[list[Sequence[republic.Message]]] = []
        self._handed_off = False
        self._usage: Usage | None = None
        self._failure: Exception | None = None

    async def produce(self) -> None:
        """Take the steps; the stream gets the events.

        Raises:
            RunEnded: The run was ended before it was complete; everything is recorded by then.
            Exception: What ended the run; the same holds.
        """
        started = perf_counter_ns()
        try:
            await self._emit_started()
            await self._take_steps()
        except BaseException as error:
            await self._parts.stream.finish(self._keep_prompt(), error)
            await self._parts.stream.finish(self._emit_finished(error, started), error)
            raise
        await self._parts.stream.finish(self._emit_finished(None, started))

    async def _emit_started(self) -> None:
        parts = self._parts
        await parts.events.emit(
            RunStarted(
                state=parts.tape.context.state,
                tape=parts.tape,
                run_id=parts.run_id,
                prompt=list(self._prompt or ()),
                model=parts.spec,
                metadata=self._metadata,
            )
        )

    async def _take_steps(self) -> None:
        prompt: list[UserContent] | None = self._prompt
        while True:
            if self._parts.stream.is_ending():
                raise RunEnded
            self._steps += 1
            finished = await self._take_step(prompt)
            if finished.status == "auto_handoff":
                prompt = self._prompt_again(prompt)
            elif finished.status == "continue":
                prompt = [finished.next_prompt] if finished.next_prompt else None
            elif finished.status == "cancelled":  # whole by itself, but nothing follows any more
                raise RunEnded
            else:
                return

    async def _take_step(self, prompt: list[UserContent] | None) -> StepFinished:
        """One step, with the events around it."""
        parts = self._parts
        started = perf_counter_ns()
        step = Step(parts, self._steps, self._carried)
        status: StepStatus = "ok"
        try:
            await parts.events.emit(
                StepStarted(
                    state=parts.tape.context.state,
                    tape=parts.tape,
                    step=self._steps,
                    prompt=None if prompt is None else list(prompt),
                    run_id=parts.run_id,
                )
            )
            exchange = await self._run_step(step, prompt)
            status = await self._status_after(exchange)
        except BaseException as error:
            status = "error" if isinstance(error, Exception) else "cancelled"
            if step.overflowed:
                await parts.stream.finish(self._hand_off(error), error)
                status = "auto_handoff" if self._handed_off else status
            finished = self._finished_step(step, prompt, status, started, error)
            await parts.stream.finish(self._end_step(finished, step), error)
            if status != "auto_handoff":
                raise
            return finished
        finished = self._finished_step(step, prompt, status, started, None)
        await parts.stream.finish(self._end_step(finished, step))
        return finished

    async def _run_step(self, step: Step, prompt: list[UserContent] | None) -> Exchange:
        try:
            exchange = await step.run(prompt, may_hand_off=not self._handed_off)
        finally:
            self._carried = [] if step.delivered else step.taken
            if step.exchange is not None and step.exchange.usage is not None:
                used = step.exchange.usage
                self._usage = used if self._usage is None else self._usage + used
        self._complete += 1
        self._done.append(exchange.recorded if prompt is not self._prompt else exchange.without_prompt())
        return exchange

    async def _status_after(self, exchange: Exchange) -> StepStatus:
        """Whether another step follows; takes the messages that came during this one."""
        stream = self._parts.stream
        if self._max_steps is None:
            return "ok"
        most = self._max_steps + self._handed_off  # the step that was too long for the model does not count
        if exchange.calls:
            if self._steps < most:
                return "cancelled" if stream.is_ending() else "continue"
            text = f"expected an answer within {self._max_steps} steps, got tool calls in the last one"
            self._failure = ModelError(text)
            stream.put_nowait(StreamFailed("model", text))
            return "ok"
        if self._steps >= most or stream.is_ending():
            return "ok"
        await take_messages(self._parts, self._carried, step=self._steps, at="end")
        return "continue" if self._carried else "ok"

    async def _hand_off(self, error: BaseException) -> None:
        """Start on an empty context, once in a run, because the request was too long for the model.

        What the run has done already goes along, so that the model does not do it again.
        """
        facts: dict[str, Any] = {"reason": "context_length", "error": str(error)}
        if self._done:
            facts["done_already"] = [summary_of(messages) for messages in self._done]
        await self._parts.tape.handoff("auto_handoff", facts, run_id=self._parts.run_id)
        self._handed_off = True

    def _prompt_again(self, prompt: list[UserContent] | None) -> list[UserContent] | None:
        """The prompt of a step that is tried again on an empty context: what the run was asked comes first."""
        if self._prompt is None or prompt is self._prompt:
            return prompt
        if prompt is None and not self._carried:
            return self._prompt
        self._carried.insert(0, self._prompt)
        return prompt

    def _finished_step(
        self,
        step: Step,
        prompt: list[UserContent] | None,
        status: StepStatus,
        started_ns: int,
        error: BaseException | None,
    ) -> StepFinished:
        exchange = step.exchange
        told = error if isinstance(error, Exception) else None
        return StepFinished(
            state=self._parts.tape.context.state,
            tape=self._parts.tape,
            step=self._steps,
            prompt=None if prompt is None else list(prompt),
            stream=StreamState(_as_bub_error(told), None if exchange is None else exchange.usage),
            status=status,
            elapsed_ms=(perf_counter_ns() - started_ns) // 1_000_000,
            error=told,
            run_id=self._parts.run_id,
        )

    async def _end_step(self, finished: StepFinished, step: Step) -> None:
        ok = finished.status in ("ok", "continue")
        reason = None if step.exchange is None else step.exchange.finish_reason
        self._parts.stream.put_nowait(StepEnded(finished.step, ok, step.text, reason))
        await self._parts.events.emit(finished)

    async def _keep_prompt(self) -> None:
        """Record what the user asked, when no step did: the tape itself knows best what is on it."""
        tape, prompt = self._parts.tape, self._prompt
        if self._complete or prompt is None:
            return
        message, run_id = republic.user(*prompt), self._parts.run_id
        found = await tape.query(kinds=(MESSAGE,), run_id=run_id)
        if not any(entry.payload == message_to_dict(message) for entry in found):
            await tape.append_messages([message], run_id=run_id)

    def _told_of(self, error: BaseException) -> Exception | None:
        """What went wrong with a run that did not come to its end; None when somebody ended it."""
        told = self._parts.stream.told_of(error)
        if isinstance(told, Exception):
            return told
        if isinstance(error, (RunEnded, KeyboardInterrupt, anyio.get_cancelled_exc_class())):
            return self._failure
        stopped = ExitError(f"expected an Exception, got {error_text(error)} - a run")
        stopped.__cause__ = error
        return stopped

    async def _emit_finished(self, error: BaseException | None, started_ns: int) -> None:
        """Say that the run is over."""
        parts = self._parts
        told = self._failure if error is None else self._told_of(error)
        status: RunStatus = "error" if told is not None else "ok" if error is None else "cancelled"
        await parts.events.emit(
            RunFinished(
                state=parts.tape.context.state,
                tape=parts.tape,
                run_id=parts.run_id,
                status=status,
                steps=self._steps,
                elapsed_ms=(perf_counter_ns() - started_ns) // 1_000_000,
                error=told,
                usage=self._usage,
                undelivered=[content for content in self._carried if content is not self._prompt],
            )
        )


def _as_bub_error(error: Exception | None) -> BubError | None:
    return error if error is None or isinstance(error, BubError) else ModelError(f"{type(error).__qualname__}: {error}")

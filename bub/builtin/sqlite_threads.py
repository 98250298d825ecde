"""The threads that work on the database: one that writes, a few that read, and the jobs that tasks give them."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import anyio
from anyio.lowlevel import current_token

from bub.builtin.sqlite_errors import is_busy, store_error
from bub.builtin.sqlite_frozen import check_unchanged, has_changed
from bub.errors import TapeError

T = TypeVar("T")

_MOST_TOGETHER: Final = 256  # jobs in one transaction


class Job(Generic[T]):
    """Work on a connection that a task waits for while a thread does it. To be made in the task.

    Args:
        work: What to do.
        alone: Not in a transaction, so not with others either.
        reads: It changes nothing, so that nobody has to wait for its end.

    Cancellation:
        A job that no thread has begun is withdrawn. One that was begun is waited for, unless it only reads.
    """

    def __init__(self, work: Callable[[sqlite3.Connection], T], *, alone: bool = False, reads: bool = False) -> None:
        self.alone: Final = alone
        self._work: Final = work
        self._reads: Final = reads
        self._taken: Final = threading.Lock()  # whoever gets it, once: the thread that does it, or who withdraws it
        self._done: Final = anyio.Event()
        self.loop: Final = current_token().native_token
        self._soon: Final = _soon(self.loop)
        self.is_finished = False
        self._results: list[T] = []
        self._error: BaseException | None = None

    @property
    def is_taken(self) -> bool:
        """Whether it was begun or withdrawn."""
        return self._taken.locked()

    def take(self) -> bool:
        """Whether the caller is the first to take it, and so the one who does it or withdraws it."""
        return self._taken.acquire(blocking=False)

    def run(self, connection: sqlite3.Connection) -> None:
        """Do the work; `finish` has to follow."""
        self._results = [self._work(connection)]

    def finish(self, error: BaseException | None = None, *others: AnyJob) -> None:
        """Tell the task that the work was done, or what went wrong; and the same to others of its event loop."""
        jobs = (self, *others)
        for job in jobs:
            job.is_finished = True
            job._error = error

        def wake() -> None:
            for job in jobs:
                job._done.set()

        with suppress(RuntimeError):  # the event loop is gone, and nobody waits any more
            self._soon(wake)

    async def outcome(self) -> T:
        """What the work gave.

        Raises:
            BaseException: What the work raised.
        """
        try:
            await self._done.wait()
        except BaseException:  # cancelled
            if not self.take() and not self._reads:
                await self.end()
            raise
        if self._error is not None:
            raise self._error
        return self._results[0]

    async def end(self) -> None:
        """Wait until it was finished, whatever is cancelled."""
        with anyio.CancelScope(shield=True):
            await self._done.wait()


AnyJob: TypeAlias = Job[Any]  # a queue holds jobs whose results are of any type
_Queue: TypeAlias = "SimpleQueue[AnyJob | None]"


def _soon(token: object) -> Callable[[Callable[[], None]], object]:
    """The function of an event loop, of asyncio or trio, that has it call something from another thread."""
    found: Any = getattr(token, "call_soon_threadsafe", None) or getattr(token, "run_sync_soon", None)
    soon: Callable[[Callable[[], None]], object] = found
    return soon


class Serve(Protocol):
    """What a thread does with a batch of jobs, at least one."""

    def __call__(self, connection: sqlite3.Connection, jobs: list[AnyJob], /) -> None:
        """Take and finish each of them, unless it was withdrawn."""
        ...


class Workers:
    """Threads with a connection each, and the queue that they take jobs from; they start when there is work.

    They end when they are closed, or when nothing refers to this object any more. They do not keep the program alive.

    Args:
        name: What the threads are called.
        most: How many there may be.
        connect: Makes a connection, in the thread.
        serve: What to do with jobs.
        together: How many jobs a thread may take at once.
    """

    def __init__(
        self,
        name: str,
        most: int,
        connect: Callable[[], sqlite3.Connection],
        serve: Serve,
        *,
        together: int = _MOST_TOGETHER,
    ) -> None:
        self._name: Final = name
        self._most: Final = most
        self._loop: Final = _Loop(connect, serve, together)
        self._threads: Final[list[threading.Thread]] = []
        self._waiting = 0
        finalizer = weakref.finalize(self, _end, self._loop.queue, self._threads)
        finalizer.atexit = False

    async def do(self, job: Job[T]) -> T:
        """What a job gives."""
        self._waiting += 1
        try:
            if self._waiting > len(self._threads) < self._most:
                thread = threading.Thread(target=self._loop.run, name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._loop.queue.put(job)
            return await job.outcome()
        finally:
            self._waiting -= 1

    async def aclose(self) -> None:
        """Wait until all jobs are done and the threads have closed their connections."""
        ends = [Job(_nothing) for _ in self._threads]
        self._loop.ends.extend(ends)
        _end(self._loop.queue, self._threads)
        for end in ends:
            await end.end()
        self._threads.clear()


def _nothing(connection: sqlite3.Connection) -> None:
    pass


def _end(queue: _Queue, threads: Sequence[threading.Thread]) -> None:
    for _ in threads:
        queue.put(None)


class _Loop:
    """What the threads of `Workers` do; knows nothing of it, so that it can be forgotten."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], serve: Serve, together: int) -> None:
        self.queue: Final[_Queue] = SimpleQueue()
        self.ends: Final[list[AnyJob]] = []
        self._connect: Final = connect
        self._serve: Final = serve
        self._together: Final = together

    def run(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            while jobs := self._next():
                try:
                    if connection is not None and has_changed(connection):
                        connection.close()
                        connection = None
                    if connection is None:
                        connection = self._connect()
                    self._serve(connection, jobs)
                except BaseException as error:  # of the connection: everyone who waits has to hear of it
                    _fail(jobs, error)
                    if connection is not None:
                        connection.close()
                        connection = None
        finally:
            if connection is not None:
                connection.close()
            if self.ends:
                self.ends.pop().finish()

    def _next(self) -> list[AnyJob]:
        """The jobs that wait, at least one; none at the end."""
        jobs: list[AnyJob] = []
        job = self.queue.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == self._together:
                return jobs
            try:
                job = self.queue.get_nowait()
            except Empty:
                return jobs
        if jobs:
            self.queue.put(None)  # first these, then the end
        return jobs


def _finish_all(jobs: Sequence[AnyJob], error: BaseException | None) -> None:
    """Finish jobs with one call into each event loop: each call wakes it up."""
    by_loop: dict[object, list[AnyJob]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for first, *others in by_loop.values():
        first.finish(error, *others)


def _fail(jobs: Sequence[AnyJob], error: BaseException) -> None:
    _finish_all([job for job in jobs if job.take() or not job.is_finished], error)


# ------------------------------------------------------------------------------------------------------------ reading


class ReadJobs:
    """Does jobs that read, one after the other, each in a transaction: what others write meanwhile it does not see.

    Args:
        path: The file, for errors.
        patience: How many seconds to wait for other processes, which hold up who reads for moments only.
    """

    def __init__(self, path: Path, patience: float) -> None:
        self._path: Final = path
        self._patience: Final = patience

    def __call__(self, connection: sqlite3.Connection, jobs: list[AnyJob], /) -> None:
        """Do them."""
        for job in jobs:
            if job.take():
                error = self._do(connection, job)
                check_unchanged(connection, self._path)  # before anybody hears of what was read
                job.finish(error)

    def _do(self, connection: sqlite3.Connection, job: AnyJob) -> BaseException | None:
        """What went wrong."""
        try:
            _patiently(partial(_begin_reading, connection), self._patience)
            job.run(connection)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            return _caused(error, self._path, "read")
        except BaseException as error:  # it belongs to the task
            return error
        finally:
            _take_back(connection)
        return None


def _begin_reading(connection: sqlite3.Connection) -> None:
    """Fix what is read from now on; nothing else that reads has to wait for others."""
    if not connection.in_transaction:
        connection.execute("BEGIN")
    connection.execute("PRAGMA schema_version").fetchone()


def _take_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _patiently(work: Callable[[], object], patience: float, jobs: Sequence[AnyJob] = ()) -> bool:
    """Do what others may hold up, again and again; False when all jobs that it is for have been given up meanwhile."""
    deadline = monotonic() + patience
    while True:
        try:
            work()
        except sqlite3.Error as error:
            if not is_busy(error) or monotonic() >= deadline:
                raise
        else:
            return True
        if jobs and all(job.is_taken for job in jobs):
            return False


def _caused(error: sqlite3.Error | UnicodeDecodeError, path: Path, verb: str) -> TapeError:
    made = store_error(error, path, verb)
    made.__cause__ = error
    return made


# ------------------------------------------------------------------------------------------------------------ writing


class WriteJobs:
    """Does jobs that write; those that wait together share a transaction, and so the wait for the disk.

    A job that fails takes back the transaction. Then the jobs are done one by one, so that it fails alone.

    Args:
        path: The file, for errors.
        patience: How many seconds to wait for other processes.
    """

    def __init__(self, path: Path, patience: float) -> None:
        self._path: Final = path
        self._patience: Final = patience

    def __call__(self, connection: sqlite3.Connection, jobs: list[AnyJob], /) -> None:
        """Do them, in their order."""
        together: list[AnyJob] = []
        for job in jobs:
            if job.alone:
                self._together(connection, together)
                together = []
                if job.take():
                    job.finish(self._alone(connection, job))
            else:
                together.append(job)
        self._together(connection, together)

    def _together(self, connection: sqlite3.Connection, jobs: Sequence[AnyJob]) -> None:
        try:
            if not self._begin(connection, jobs):
                return
        except sqlite3.Error as error:
            _fail(jobs, _caused(error, self._path, "change"))
            return
        taken = [job for job in jobs if job.take()]
        failure = self._commit(connection, taken)
        if failure is not None and len(taken) > 1:
            for job in taken:
                job.finish(self._one(connection, job))
        else:
            _finish_all(taken, failure)

    def _alone(self, connection: sqlite3.Connection, job: AnyJob) -> BaseException | None:
        try:
            _patiently(partial(job.run, connection), self._patience)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            return _caused(error, self._path, "change")
        except BaseException as error:  # it belongs to the task
            return error
        return None

    def _one(self, connection: sqlite3.Connection, job: AnyJob) -> BaseException | None:
        try:
            self._begin(connection, ())
        except sqlite3.Error as error:
            return _caused(error, self._path, "change")
        return self._commit(connection, [job])

    def _begin(self, connection: sqlite3.Connection, jobs: Sequence[AnyJob]) -> bool:
        """Get the lock; False when all who wanted it have given up meanwhile."""
        return _patiently(partial(connection.execute, "BEGIN IMMEDIATE"), self._patience, jobs)

    def _commit(self, connection: sqlite3.Connection, jobs: Sequence[AnyJob]) -> BaseException | None:
        """Do jobs and commit; what went wrong, when it was all taken back."""
        try:
            for job in jobs:
                job.run(connection)
            connection.execute("COMMIT")
        except (sqlite3.Error, UnicodeDecodeError) as error:
            return _caused(error, self._path, "change")
        except BaseException as error:  # it belongs to the task
            return error
        finally:
            _take_back(connection)
        return None

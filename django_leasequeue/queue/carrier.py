"""Lanes that carry a buffer's calls to the database, one flush after the other: tasks in an event loop, or a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg

from .. import engine, twins
from ..conf import process
from ..engine import pool
from ..exceptions import LeaseQueueError, QueueClosed, StorageError
from .base import Handle, arun, storage_errors
from .flush import CLAIM, ENQUEUE, LOOK, Call, flush, take
from .serializers import Serializer

#: Flushes of one lane under way at once: one waits for the database while the other's answers are handed out.
FLUSHES = 2
#: Tries of a flush that PostgreSQL undid as a whole (a deadlock with another transaction).
TRIES = 3


def closed() -> QueueClosed:
    """Return the error for a call that comes too early or too late."""
    return QueueClosed("A BufferedQueue takes calls only inside its `with` or `async with` block.")


def undone(error: StorageError) -> bool:
    """Whether PostgreSQL rolled the transaction back for reasons that do not come again by themselves (class 40)."""
    cause = error.cause
    while cause is not None:
        state = getattr(cause, "sqlstate", None)
        if state is not None:
            return bool(state in ("40001", "40P01"))
        cause = cause.__cause__
    return False


def _flushing(queue: Handle, serializer: Serializer, batch: list[Call[Any]]) -> Generator[Any, Any, None]:
    """Flush calls together, and each by itself if that fails because of one of them; the steps are operations."""
    batch = [call for call in batch if not (call.future is not None and call.future.cancelled())]
    try:
        yield from _persistently(flush(queue, serializer, batch))
    except Exception as error:  # noqa: BLE001  (it is the callers')
        for call in batch:
            call.answer = error
            # It may be one call's own. Not when the connection is lost: what was sent may have happened.
            if len(batch) > 1 and not isinstance(error, StorageError):
                try:
                    yield from _persistently(flush(queue, serializer, [call]))
                except Exception as own:  # noqa: BLE001  (it is the caller's)
                    call.answer = own
    for call in batch:
        call.deliver()
    # Jobs claimed for callers who are gone go back.
    gone = [call for call in batch if call.kind == CLAIM and call.future is not None and call.future.cancelled()]
    releases = [
        engine.Release(job.seq, job.token, 0) for call in gone if isinstance(call.answer, list) for job in call.answer
    ]
    if releases:
        back = engine.release(releases, queue.node, project=queue.project, queue=queue.name, unstarted=True)
        with suppress(LeaseQueueError):  # their leases end by themselves
            yield from _persistently(back)


def _persistently(operation: engine.Operation[Any]) -> Generator[Any, Any, None]:
    for tries_left in reversed(range(TRIES)):
        try:
            yield operation
        except StorageError as error:
            if not (tries_left and undone(error)):
                raise
        else:
            return


def _by_database(queue: Handle, batch: list[Call[Any]]) -> list[tuple[str, list[Call[Any]]]]:
    """Return the calls by database: those that add jobs have another one while the queue moves."""
    if (adding := queue.adding) == (using := queue.using):
        return [(using, batch)]
    adds = [call for call in batch if call.kind in (ENQUEUE, LOOK)]  # and looks at what was added
    others = [call for call in batch if call.kind not in (ENQUEUE, LOOK)]
    return [(alias, calls) for alias, calls in ((using, others), (adding, adds)) if calls]


class AsyncLane:
    """Flushes in the running event loop, on its pool of connections; calls ``idle`` when nothing is left to do."""

    def __init__(self, queue: Handle, serializer: Serializer, idle: Callable[[], Any] | None = None) -> None:
        self._queue = queue
        self._serializer = serializer
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._pending: list[Call[Any]] = []
        self._open = True
        self._tasks: set[asyncio.Task[None]] = set()
        # Tasks that will look at what is pending again before they end.
        self._draining = 0

    def put(self, call: Call[Any]) -> asyncio.Future[Any]:
        if not self._open:
            raise closed()
        future: asyncio.Future[Any] = self._loop.create_future()
        call.future = future
        self._pending.append(call)
        # Who comes while a task is about to start goes along with it.
        if len(self._pending) == 1 and self._draining < FLUSHES:
            self._draining += 1
            task = self._loop.create_task(self._drain())
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return future

    async def close(self) -> None:
        """Flush the buffer and accept no further calls."""
        self._open = False
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._idle is not None and not self._tasks and not self._pending:
            self._idle()

    async def _drain(self) -> None:
        batch: list[Call[Any]] = []
        try:
            while self._pending:
                batch = take(self._pending)
                for using, part in _by_database(self._queue, batch):
                    steps = _flushing(self._queue, self._serializer, part)
                    await twins.arun(steps, partial(arun, using=using))
            self._draining -= 1
        except BaseException as error:
            self._draining -= 1
            # The loop ends, or the task was cancelled: no caller may wait for ever.
            left, self._pending = self._pending, []
            for call in batch + left:
                call.answer = QueueClosed(f"The buffer broke off: {error!r}")
                call.deliver()
            raise


_shared: process.PerLoop[dict[Any, AsyncLane]] = process.PerLoop(dict)


def shared_lane(queue: Handle, serializer: Serializer, purpose: int) -> AsyncLane:
    """Return the lane that all coroutines of this event loop share for one purpose on one queue, while it is in use."""
    lanes = _shared.get()
    place = (queue.using, queue.project, queue.name, queue.preset, serializer, purpose)
    lane = lanes.get(place)
    if lane is None:
        lane = lanes[place] = AsyncLane(queue, serializer, partial(lanes.pop, place, None))
    return lane


class ThreadLane:
    """Flushes in a thread, on a connection of its own."""

    def __init__(self, queue: Handle, serializer: Serializer) -> None:
        self._queue = queue
        self._serializer = serializer
        self._pending: list[Call[Any]] = []
        self._changed = threading.Condition()
        self._open = True
        self._connections: dict[str, psycopg.Connection[Any]] = {}
        self._thread = threading.Thread(target=self._run, name=f"leasequeue-buffer-{queue.name}", daemon=True)
        self._thread.start()

    def put(self, call: Call[Any]) -> Future[Any]:
        future: Future[Any] = Future()
        call.future = future
        with self._changed:
            if not self._open:
                raise closed()
            self._pending.append(call)
            self._changed.notify()
        return future

    def close(self) -> None:
        """Flush what is buffered, and end."""
        with self._changed:
            self._open = False
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    while self._open and not self._pending:
                        self._changed.wait()
                    if not self._pending:
                        return
                    batch = take(self._pending)
                for using, part in _by_database(self._queue, batch):
                    twins.run(_flushing(self._queue, self._serializer, part), partial(self._carry_out, using=using))
        finally:
            for using in list(self._connections):
                self._disconnect(using)

    def _carry_out(self, operation: engine.Operation[Any], using: str) -> None:
        try:
            with storage_errors():
                connection = self._connections.get(using)
                if connection is None or connection.closed:
                    connection = self._connections[using] = pool.connect(using)
                engine.ConnectionExecutor(connection).run(operation)
        except StorageError as error:
            if not undone(error):
                self._disconnect(using)
            raise

    def _disconnect(self, using: str) -> None:
        if (connection := self._connections.pop(using, None)) is not None:
            connection.close()

"""Results that can be cancelled and waited for: what our ``TaskResult`` has beside Django's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import sync_to_async
from django.db import connections

from .. import engine
from ..conf import process
from ..exceptions import InvalidOption, JobCancelled, JobFailed, WaitTimeout
from ..twins import Steps, arun, either, run
from .api import GenericTaskResult, T, TaskResultDoesNotExist, TaskResultStatus, task_backends

if TYPE_CHECKING:
    from ..notify import Subscription
    from .backend import LeaseQueueBackend

#: Seconds that a caller waits at most.
MAX_TIMEOUT = 86_400.0
#: Seconds that listening may take to begin; after them the caller polls until it has begun.
_READY_TIMEOUT = 5.0
#: Seconds between two looks at the result: while its end is told, and, doubled from and up to, while it is not.
_BACKSTOP, _FIRST_POLL, _LAST_POLL = 15.0, 0.05, 1.0


class LeaseQueueTaskResult(GenericTaskResult[T]):
    """Django's ``TaskResult``, which can also be cancelled and waited for."""

    __slots__ = ()

    if TYPE_CHECKING:  # it raises where there is none

        @property
        def return_value(self) -> T: ...

    def cancel(self) -> bool:
        """Take the task out if nobody runs it: it is waiting, delayed, or between two attempts.

        In the caller's transaction if there is one. A worker that claims it at the same time wins or loses, never both.

        Returns:
            Whether it was taken out. ``refresh()`` raises ``TaskResultDoesNotExist`` from then on.
        """
        return bool(engine.run(self._cancelling(), self._database()))

    async def acancel(self) -> bool:
        """See ``cancel``. It runs on an async connection of its own, not in a transaction of the caller."""
        gone = await engine.arun(self._cancelling(), self._database())
        return bool(gone)

    def wait(self, timeout: float = 30.0) -> T:
        """Wait until the task has ended, refresh this result, and return what the task returned.

        Not inside ``transaction.atomic()`` of the jobs' database, where no worker sees the task; tests with
        ``django_leasequeue.testing`` run it there themselves.

        Args:
            timeout: seconds, at most a day.

        Raises:
            WaitTimeout: it has not ended in time; it goes on.
            JobFailed: it has failed; ``errors`` of this result tells of its attempts.
            JobCancelled: it was cancelled or removed, or its result has expired.
            InvalidOption: ``timeout`` is not allowed, or the task waits for a transaction of the caller.
        """
        return run(self._waiting(timeout, _Bell()))

    async def await_result(self, timeout: float = 30.0) -> T:  # noqa: ASYNC109  (the same call as the thread's)
        """Wait as ``wait`` does, in a coroutine, without a thread or a connection that waits.

        Args:
            timeout: seconds, at most a day.

        Raises:
            WaitTimeout, JobFailed, JobCancelled, InvalidOption: as ``wait``.
        """
        return await arun(self._waiting(timeout, _AsyncBell()))

    def _waiting(self, timeout: float, bell: _Bell) -> Steps[T]:
        deadline = time.monotonic() + _check_timeout(timeout)
        database = self._database()
        if self.enqueued_at is not None:
            yield from self._look()
            if self.is_finished:
                return self._ended()
        work = self._work_here((yield either(_in_transaction, _in_tests_transaction, database)))
        if work is not None:
            yield either(work, sync_to_async(work))
        hearing = _Hearing(database, bell.ring)
        try:
            heard = hearing.subscription
            yield either(heard.wait_ready, heard.async_ready, min(_READY_TIMEOUT, timeout))
            hearing.joined((yield either(engine.run, engine.arun, self._joining(), database)))
            while True:
                yield from self._look()
                if self.is_finished:
                    return self._ended()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise WaitTimeout(self.id, timeout)
                yield either(bell.wait, bell.wait, min(left, hearing.patience()))
        finally:
            hearing.subscription.close()

    def _lease_backend(self) -> LeaseQueueBackend:
        return cast("LeaseQueueBackend", task_backends[self.backend])

    def _database(self) -> str:
        return self._lease_backend().database_of(self.task)

    def _cancelling(self) -> engine.Operation[list[tuple[int, str | None]]]:
        project = self._lease_backend().config.project
        return engine.cancel(self.task.queue_name, keys=[self.id], project=project)

    def _joining(self) -> engine.Operation[tuple[int | None, bool]]:
        from ..notify import reply_channel
        from . import jobs

        return jobs.join(self.id, self.task.queue_name, self._lease_backend().config.project, reply_channel())

    def _work_here(self, hidden: bool) -> Callable[[], None] | None:
        """Return what runs jobs in place of a worker, in tests.

        Raises:
            InvalidOption: no worker can see the task, and this is no test that runs it.
        """
        if self.enqueued_at is None:
            raise InvalidOption(
                "the task is not enqueued before the transaction of the caller's data commits. Wait for it after that."
            )
        inline = process.switches.inline
        if inline is not None and (hidden or inline.always):
            return inline
        if hidden:
            raise InvalidOption(
                "waiting inside transaction.atomic() would wait for a task that no worker can see. Wait for it after"
                " the transaction, or in a test use the fixture 'leasequeue'."
            )
        return None

    def _look(self) -> Steps[None]:
        try:
            yield either(self.refresh, self.arefresh)
        except TaskResultDoesNotExist as error:
            raise _gone(self.id) from error

    def _ended(self) -> T:
        if self.status is TaskResultStatus.SUCCESSFUL:
            value: T = self.return_value
            return value
        if not self.errors:
            raise JobCancelled(self.id)
        last = self.errors[-1]
        said = last.traceback.rstrip().rpartition("\n")[2]
        errors = [{"type": error.exception_class_path, "traceback": error.traceback} for error in self.errors]
        raise JobFailed(self.id, last.exception_class_path, said, self.attempts, errors)


class _Bell:
    """Wakes a thread."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def wait(self, seconds: float) -> Any:
        self._rung.wait(seconds)
        self._rung.clear()


class _AsyncBell(_Bell):
    """Wakes a coroutine, from any thread."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def ring(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
            self._event.clear()


class _Hearing:
    """The ends of tasks as a caller hears them, and the time that it may sleep.

    Args:
        database: alias of the jobs' database.
        wake: wakes the caller, from any thread.
    """

    def __init__(self, database: str, wake: Callable[[], object]) -> None:
        from ..notify import get_listener, reply_channel

        self._wake = wake
        self._seq: int | None = None
        self._told = False
        self._polled = _FIRST_POLL
        self.subscription: Subscription = get_listener(database).subscribe(reply_channel(), self._hear)

    def joined(self, answer: tuple[int | None, bool]) -> None:
        """Note the number of the job, and whether its end will be told."""
        self._seq, self._told = answer

    def _hear(self, payload: str | None) -> None:
        if payload is None or self._seq is None or payload.startswith(f"{self._seq}:"):
            self._wake()

    def patience(self) -> float:
        """Return the seconds to sleep at most before the next look."""
        if self._told and self.subscription.live:
            return _BACKSTOP
        step, self._polled = self._polled, min(self._polled * 2, _LAST_POLL)
        return step


def _in_transaction(database: str) -> bool:
    return connections[database].in_atomic_block


async def _in_tests_transaction(database: str) -> bool:
    """Return whether async calls use Django's connection (in tests), and a transaction is open there."""
    from ..engine import pool

    if not pool.in_thread():
        return False
    return await sync_to_async(lambda: connections[database].in_atomic_block)()


def _gone(key: str) -> JobCancelled:
    return JobCancelled(key, f"Task {key} is gone: it was cancelled or removed, or its result has expired.")


def _check_timeout(timeout: float) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT:
        raise InvalidOption(f"timeout must be seconds, more than 0 and at most {MAX_TIMEOUT:g}; it is {timeout!r}.")
    return float(timeout)

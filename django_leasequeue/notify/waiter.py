"""Waiting for ready jobs, in a thread or in a coroutine: look, and only if there is nothing, wait and look again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from .listener import Listener

#: Seconds between looks while nobody can tell us (polling only, or the connection is down): doubled from, up to.
FIRST_POLL, LAST_POLL = 0.025, 0.5
#: Seconds that entering waits for the locks; without them the waiter polls until they are there.
READY_TIMEOUT = 5.0


class _Polls:
    """The longest sleep while there is nobody who wakes us."""

    def __init__(self) -> None:
        self._step = FIRST_POLL

    def limit(self, timeout: float, live: bool) -> float:
        if live:
            self._step = FIRST_POLL
            return timeout
        step, self._step = self._step, min(self._step * 2, LAST_POLL)
        return min(timeout, step)


class Waiter:
    """Waits in a thread until jobs of some queues may be ready.

    Example::

        with Waiter(get_listener(), [queue.id]) as waiter:
            while not (jobs := engine.run(engine.claim("mail", node))):
                waiter.wait(5)

    No wake-up is lost when every look comes after entering and after each ``wait``. One thread at a time.

    Args:
        listener: of the database that holds the queues.
        queue_ids: the ids of the queues.
    """

    def __init__(self, listener: Listener, queue_ids: Sequence[int]) -> None:
        self._event = threading.Event()
        self._polls = _Polls()
        self._listener = listener
        self._queue_ids = queue_ids

    def __enter__(self) -> Self:
        self._watch = self._listener.watch(self._queue_ids, self._event.set)
        self._watch.wait_ready(READY_TIMEOUT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watch.close()

    def wait(self, timeout: float) -> bool:
        """Sleep until it is worth to look again, at most ``timeout`` seconds.

        Returns:
            Whether somebody woke us. Look in both cases: the timeout is the backstop.
        """
        woken = self._event.wait(self._polls.limit(timeout, self._watch.live))
        self._event.clear()
        return woken

    def wake(self) -> None:
        """End the current or the next ``wait``, from any thread."""
        self._event.set()


class AsyncWaiter:
    """The same for coroutines: ``async with AsyncWaiter(listener, ids) as waiter: ... await waiter.wait(5)``."""

    def __init__(self, listener: Listener, queue_ids: Sequence[int]) -> None:
        self._event = asyncio.Event()
        self._polls = _Polls()
        self._listener = listener
        self._queue_ids = queue_ids

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._watch = self._listener.watch(self._queue_ids, self.wake)
        try:
            await self._watch.async_ready(READY_TIMEOUT)
        except BaseException:
            self._watch.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watch.close()

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109  (the same call as the thread's)
        """Sleep until it is worth to look again, at most ``timeout`` seconds; return whether somebody woke us."""
        try:
            async with asyncio.timeout(self._polls.limit(timeout, self._watch.live)):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True

    def wake(self) -> None:
        """End the current or the next ``wait``, from any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits there
            self._loop.call_soon_threadsafe(self._event.set)

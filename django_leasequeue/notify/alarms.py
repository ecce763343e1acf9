"""Alarms that wake one caller, in a thread or in an event loop, and the fallback polling interval."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from .listener import Listener

#: Fallback polling interval in seconds (LISTEN is off, or its connection is down): doubled from, up to.
FIRST_POLL, LAST_POLL = 0.025, 0.5


class Patience:
    """The longest sleep of a caller: short, and doubled each time, while no notification can come."""

    def __init__(self) -> None:
        self._step = FIRST_POLL

    def limit(self, timeout: float, live: bool) -> float:
        """Return the seconds to sleep at most of ``timeout``; ``live``: whether a notification ends the sleep."""
        if live:
            self._step = FIRST_POLL
            return timeout
        step, self._step = self._step, min(self._step * 2, LAST_POLL)
        return min(timeout, step)


class Alarm:
    """Wakes a thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        """End the current or the next ``wait``, from any thread; does not block."""
        self._event.set()

    def wait(self, timeout: float) -> Any:
        woken = self._event.wait(timeout)
        self._event.clear()
        return woken


class AsyncAlarm(Alarm):
    """Wakes a coroutine of the event loop in which it is made. Its ``wait`` is a coroutine function."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing waits there
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._woken = True
        self._end()

    def _end(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109  (the same call as the thread's)
        if not self._woken:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(timeout, self._end)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        woken, self._woken = self._woken, False
        return woken


@asynccontextmanager
async def waking(listener: Listener, queue_ids: Sequence[int]) -> AsyncIterator[Callable[[float], Awaitable[bool]]]:
    """Yield the call with which a coroutine sleeps until jobs of some queues may be ready, or for so many seconds.

    It returns whether a wake-up came; look first, and after each sleep.
    """
    alarm, patience = AsyncAlarm(), Patience()
    watch = listener.watch(queue_ids, alarm.wake)
    try:
        await watch.async_ready()
        yield lambda timeout: alarm.wait(patience.limit(timeout, watch.live))
    finally:
        watch.close()

"""Alarms that wake one caller, in a thread or in an event loop, and the fallback that polls without LISTEN."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from .listener import Listener

#: First and longest polling interval in seconds while LISTEN is off or its connection is down; doubled each time.
FIRST_POLL, LAST_POLL = 0.025, 0.5


class FallbackPoll:
    """Bounds how long a caller sleeps while no notification can arrive: briefly first, then doubled each time."""

    def __init__(self) -> None:
        self._step = FIRST_POLL

    def limit(self, timeout: float, live: bool) -> float:
        """Return how many of ``timeout`` seconds to sleep; ``live``: a notification will end the sleep."""
        if live:
            self._step = FIRST_POLL
            return timeout
        step, self._step = self._step, min(self._step * 2, LAST_POLL)
        return min(timeout, step)


class Alarm:
    """Wakes a thread: a binary semaphore of one lock, lighter than the three objects of ``threading.Event``."""

    __slots__ = ("_lock", "sleeping")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        #: The owner sets it while a ``wake`` is worth its cost; the first ``wake`` clears it.
        self.sleeping = False

    def wake(self) -> None:
        """End the current or the next ``wait``, from any thread; does not block."""
        self.sleeping = False
        try:  # noqa: SIM105  (suppress takes four times as long, and jobs wait for it)
            self._lock.release()
        except RuntimeError:  # it was woken already
            pass

    def wait(self, timeout: float | None = None) -> Any:
        """Sleep until a ``wake``, at most ``timeout`` seconds; return whether one came."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))

    def doze(self, timeout: float | None, unless: Callable[[], object]) -> bool:
        """Sleep as ``wait``, and say so by ``sleeping``; not if ``unless`` finds work by now."""
        self.sleeping = True
        woken = not unless() and self.wait(timeout)
        self.sleeping = False
        return woken


class AsyncAlarm(Alarm):
    """Wakes a coroutine of the event loop in which it is made. Its ``wait`` is a coroutine function."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing waits there
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  (the same call as the thread's)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        woken = self._event.is_set()
        self._event.clear()
        return woken


@asynccontextmanager
async def waking(listener: Listener, queue_ids: Sequence[int]) -> AsyncIterator[Callable[[float], Awaitable[bool]]]:
    """Yield ``sleep(timeout)``, which ends early when one of the queues may have jobs. Look before and after it."""
    alarm, fallback = AsyncAlarm(), FallbackPoll()
    watch = listener.watch(queue_ids, alarm.wake)
    try:
        await watch.async_ready()
        yield lambda timeout: alarm.wait(fallback.limit(timeout, watch.live))
    finally:
        watch.close()

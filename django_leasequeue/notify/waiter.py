"""Waiting for ready jobs in a coroutine: look, and only if there is nothing, wait and look again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from .alarms import AsyncAlarm, Patience
from .listener import Listener


class AsyncWaiter:
    """Waits in a coroutine until jobs of some queues may be ready.

    Example::

        async with AsyncWaiter(get_listener(), [queue.id]) as waiter:
            while not (jobs := await engine.arun(engine.claim("mail", node))):
                await waiter.wait(5)

    No wake-up is lost when every look comes after entering and after each ``wait``.

    Args:
        listener: of the database that holds the queues.
        queue_ids: the ids of the queues.
    """

    def __init__(self, listener: Listener, queue_ids: Sequence[int]) -> None:
        self._patience = Patience()
        self._listener = listener
        self._queue_ids = queue_ids

    async def __aenter__(self) -> Self:
        self._alarm = AsyncAlarm()
        self._watch = self._listener.watch(self._queue_ids, self._alarm.wake)
        try:
            await self._watch.async_ready()
        except BaseException:
            self._watch.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self._watch.close()

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109  (the caller's patience)
        """Sleep until it is worth to look again, at most ``timeout`` seconds.

        Returns:
            Whether somebody woke us. Look in both cases: the timeout is the backstop.
        """
        return await self._alarm.wait(self._patience.limit(timeout, self._watch.live))

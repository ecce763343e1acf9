"""The pool of one event loop's connections to an alias. It ends with its loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

#: Seconds for which the pool tries to connect before a caller has to ask it again.
RETRY = 1.0
#: The coroutine by which the scheduler of a pool waits; with Python 3.11 it is a task of its own.
_WAIT = "Event.wait"


class _Cancelled(BaseException):
    """The loop ends while a connection is being opened."""


class LoopPool(AsyncConnectionPool[Any]):
    """A pool that opens connections when they are needed, and closes them when its loop ends."""

    def __init__(self, **options: Any) -> None:
        self._asking: set[asyncio.Task[None]] = set()
        self._background: list[asyncio.Task[Any]] = []
        self._lifetime: AsyncGenerator[None, None] | None = None
        super().__init__(min_size=0, reconnect_timeout=RETRY, reconnect_failed=self._ask_again, open=False, **options)

    async def begin(self, ended: Callable[[], object]) -> None:
        """Open the pool; ``ended`` is called when it closes."""
        self._loop = asyncio.get_running_loop()
        await self.open()
        # asyncio.run cancels all tasks that it knows, and waits for them: for ever, as psycopg's workers take a cancel
        # for an error of what they do, and before Python 3.12 a wait that ends at that moment loses it.
        names = (f"{self.name}-worker-", f"{self.name}-scheduler")
        self._background = [task for task in asyncio.all_tasks() if task.get_name().startswith(names)]
        for task in self._background:
            asyncio.tasks._unregister_task(task)
        self._lifetime = self._until_closed(ended)
        await anext(self._lifetime)

    async def end(self) -> None:
        """Close the pool."""
        if self._lifetime is not None:
            await self._lifetime.aclose()

    def abandon(self) -> None:
        """Close the connections of a loop that has been closed: nothing can be awaited there."""
        for connection in self._pool:
            connection.pgconn.finish()
        # Python would log an error for each of the pool's tasks, of which the host knows nothing.
        for task in [*self._background, *asyncio.all_tasks(self._loop)]:
            running = task.get_coro()
            if task in self._background or getattr(running, "__qualname__", "") == _WAIT:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if running is not None:
                    with suppress(RuntimeError):  # the loop is closed
                        running.close()

    async def _until_closed(self, ended: Callable[[], object]) -> AsyncGenerator[None, None]:
        # asyncio closes open generators when a loop ends, as no other object: this one closes the pool.
        try:
            yield
        finally:
            ended()
            idle = list(self._pool)
            for task in self._background:
                task.cancel()
            with suppress(asyncio.CancelledError):  # theirs
                await self.close()
            for connection in idle:
                await connection.close()

    @classmethod
    async def worker(cls, *args: Any) -> None:
        with suppress(_Cancelled):
            await super().worker(*args)

    async def _connect(self, *args: Any, **options: Any) -> Any:
        try:
            return await super()._connect(*args, **options)
        except asyncio.CancelledError:
            raise _Cancelled from None

    async def _ask_again(self, _: object) -> None:
        """Go on connecting while a caller waits for a connection: the pool by itself would do so later and later."""

        async def ask() -> None:
            with suppress(psycopg.Error):
                async with self.connection(RETRY):
                    pass

        if not self.closed and self.get_stats().get("requests_waiting"):
            task = asyncio.ensure_future(ask())
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

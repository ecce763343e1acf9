"""Running engine operations for a request: natively async under ASGI, in its thread under WSGI or as ``ASYNC`` says."""

from __future__ import annotations

import time
from typing import TypeVar

from asgiref.sync import sync_to_async

from ..engine import AsyncConnectionExecutor, DjangoExecutor, Operation, Work, run
from ..engine.pool import borrow, in_thread, patiently

T = TypeVar("T")

#: Where the server notes in the ASGI scope when the request came in (``api.asgi``).
RECEIVED = "leasequeue.received"
#: Where it leaves a body that it has not read: a view reads it when the client is admitted.
UNREAD = "leasequeue.unread"


class RequestRunner:
    """Runs the operations of one request.

    Args:
        using: alias of the database.
        threaded: whether to use Django's connection of the request's thread.
    """

    def __init__(self, using: str, *, threaded: bool) -> None:
        self.using = using
        self.threaded = threaded or in_thread()

    async def run(self, work: Work[T]) -> T:
        """Run an operation."""
        if self.threaded:
            return await sync_to_async(self._run)(work)
        async with borrow(self.using) as connection:
            return await AsyncConnectionExecutor(connection).run(work)

    def _run(self, work: Work[T]) -> T:
        with patiently(self.using):
            return run(work, self.using)

    async def run_flushed(self, operation: Operation[T]) -> tuple[T, float]:
        """Run an operation in a transaction of its own and return its value and the milliseconds that the commit took.

        On a topic with durability ``fsync`` that is the flush: the statements themselves do not wait for the disk.
        """
        if self.threaded:
            return await sync_to_async(self._flushed)(operation)
        async with borrow(self.using) as connection:
            executor = AsyncConnectionExecutor(connection)
            async with executor.transaction():
                value = await executor.run(operation)
                ended = time.perf_counter()
            return value, (time.perf_counter() - ended) * 1000

    def _flushed(self, operation: Operation[T]) -> tuple[T, float]:
        executor = DjangoExecutor(self.using)
        with patiently(self.using), executor.transaction():
            value = executor.run(operation)
            ended = time.perf_counter()
        return value, (time.perf_counter() - ended) * 1000

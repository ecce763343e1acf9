"""Running engine operations for a request: natively async under ASGI, in its thread under WSGI or as ``ASYNC`` says."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from functools import partial
from typing import TypeVar, cast

from asgiref.sync import sync_to_async

from .. import conf
from ..engine import AsyncConnectionExecutor, ConnectionExecutor, DjangoExecutor, Operation, Work
from ..engine.operation import Steps
from ..engine.pool import borrow, connect, in_thread, patiently
from . import payload

T = TypeVar("T")

_threads = ThreadPoolExecutor(4, "leasequeue-large")

#: Where the server notes in the ASGI scope when the request came in (``api.asgi``).
RECEIVED = "leasequeue.received"
#: Where it leaves a body that it has not read: a view reads it when the client is admitted.
UNREAD = "leasequeue.unread"


class RequestRunner:
    """Runs the operations of one request; ``threaded``: on Django's connection of its thread."""

    def __init__(self, using: str, *, threaded: bool) -> None:
        self.using = using
        self.threaded = threaded or in_thread()

    def on(self, using: str) -> RequestRunner:
        return self if using == self.using else RequestRunner(using, threaded=self.threaded)

    async def run(self, work: Work[T], *, large: bool = False) -> T:
        """Run an operation; ``large``: its parameters are, and preparing them would hold the event loop."""
        if self.threaded or large:
            return (await self._in_thread(work, flush=False))[0]
        async with borrow(self.using) as connection:
            return await AsyncConnectionExecutor(connection).run(work)

    async def run_flushed(self, work: Work[T], *, large: bool = False) -> tuple[T, float]:
        """Run an operation in a transaction of its own; return its value and the milliseconds of its commit."""
        if self.threaded or large:
            return await self._in_thread(work, flush=True)
        async with borrow(self.using) as connection:
            executor = AsyncConnectionExecutor(connection)
            async with executor.transaction():
                value = await executor.run(work)
                ended = time.perf_counter()
            return value, (time.perf_counter() - ended) * 1000

    async def _in_thread(self, work: Work[T], *, flush: bool) -> tuple[T, float]:
        steps = work.steps() if isinstance(work, Operation) else work

        def here() -> tuple[T, float]:
            with patiently(self.using):
                return _carry_out(DjangoExecutor(self.using), steps, flush)

        def aside() -> tuple[T, float]:  # (on a connection of its own)
            with closing(connect(self.using, patience=conf.settings.STATEMENT_TIMEOUT or None)) as connection:
                return _carry_out(ConnectionExecutor(connection), _considerately(steps), flush)

        if self.threaded:
            return await sync_to_async(here)()
        return await asyncio.get_running_loop().run_in_executor(_threads, aside)


def _carry_out(executor: DjangoExecutor | ConnectionExecutor, steps: Steps[T], flush: bool) -> tuple[T, float]:
    with executor.transaction() if flush else nullcontext():
        value = executor.run(steps)
        ended = time.perf_counter()
    return value, (time.perf_counter() - ended) * 1000


def _considerately(steps: Steps[T]) -> Steps[T]:
    """Let steps be prepared by one thread at a time."""
    go = partial(next, steps)
    while True:
        with payload.considerately():
            try:
                step = go()
            except StopIteration as end:
                return cast(T, end.value)
        try:
            go = partial(steps.send, (yield step))
        except Exception as error:  # noqa: BLE001  (the steps may have an answer to it)
            go = partial(steps.throw, error)

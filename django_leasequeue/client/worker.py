"""``Worker``: runs a handler for each job of a queue, functions in threads and coroutines in an event loop."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import random
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from typing import Any

from ..exceptions import InvalidOption
from .client import AsyncClient, Client
from .jobs import MAX_BATCH, AsyncJobSteps, Batcher, JobSteps, Leases, Suspended
from .messages import ClientJob
from .plans import NEVER, logger

#: Seconds that a stop waits for a current claim, to give its jobs back.
LAST_CLAIM = 2.0


class Again(Exception):
    """Raised by a handler to give the job back for a delivery after ``delay`` seconds, without an error in the log."""

    def __init__(self, delay: float = 0.0) -> None:
        if not 0 <= delay < math.inf:
            raise InvalidOption(f"delay must be a number of seconds from 0; it is {delay!r}.")
        self.delay = delay
        super().__init__(f"again in {delay:g} s")


def default_delay(job: ClientJob) -> float:
    """Return the seconds until the next delivery of a failed job: 1, 2, 4 ... up to 300, randomly shortened."""
    return min(300.0, 2.0 ** min(job.deliveries - 1, 20)) * random.uniform(0.5, 1.0)


def _check_integer(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidOption(f"{name} must be an integer from {low} to {high:,}; it is {value!r}.")


class Worker:
    """Claims jobs, runs the handler, acks jobs that return and gives back jobs that raise.

    It extends leases while handlers run. If that fails, ``job.lost`` becomes true a second before the end of the lease
    (a quarter of a lease below four seconds); ``job.cancelled`` becomes true if its workflow is cancelled. A coroutine
    is cancelled then. No job starts after its lease. Jobs may run twice: make handlers idempotent.

    ``client`` gives the server and the key. The handler gets a ``ClientJob``: a function runs in a thread, a coroutine
    function in the event loop; its value is ignored. ``node`` must be unique among all workers; by default it is host,
    process and a random part. Up to ``concurrency`` jobs (1,000 at most) run at once. After a kill, its jobs wait for
    ``lease_ms``. With ``stream`` the server pushes jobs (``/work``); otherwise the worker claims, with pauses up to
    ``poll_seconds``. A stop waits ``drain_seconds`` for running jobs; ``retry_delay`` returns the seconds until the
    next delivery of a failed job.
    """

    def __init__(
        self,
        client: Client | AsyncClient,
        topic: str,
        handler: Callable[[ClientJob], Any],
        *,
        node: str | None = None,
        concurrency: int = 8,
        lease_ms: int = 30_000,
        stream: bool = True,
        poll_seconds: float = 1.0,
        drain_seconds: float = 30.0,
        retry_delay: Callable[[ClientJob], float] = default_delay,
    ) -> None:
        _check_integer("concurrency", concurrency, 1, MAX_BATCH)
        _check_integer("lease_ms", lease_ms, 100, 86_400_000)
        self.topic = topic
        self.node = node or f"{socket.gethostname()[:80]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._template = client
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004  (an object with an async __call__)
        )
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._stream = stream
        self._poll_seconds = poll_seconds
        self._drain_seconds = drain_seconds
        self._retry_delay = retry_delay
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._stopped_early = False
        self._running: dict[ClientJob, asyncio.Task[None]] = {}
        self._free = asyncio.Event()
        #: For steps of functions; made with the first such job.
        self._synchronous: Client | None = None

    def run(self, *, signals: bool = True) -> None:
        """Work until ``stop`` is called, or (with ``signals``, in the main thread only) SIGTERM or SIGINT comes.

        ``ApiError``: the server refuses to give jobs: a wrong key, no such topic, a log.
        """
        asyncio.run(self.arun(signals=signals))

    def stop(self) -> None:
        """Take no more jobs, and let ``run`` return when the running jobs are done. From any thread."""
        self._stopped_early = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def arun(self, *, signals: bool = False) -> None:
        """See ``run``; in a running event loop."""
        self._loop, self._stopping, self._free = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        if self._stopped_early:
            return
        threads = self._threads = ThreadPoolExecutor(self._concurrency, "leasequeue-client")
        try:
            with self._signals(signals):
                # Heartbeats have their own connection, so no other request delays them, and no retries.
                async with self._template.asynchronous() as client, self._template.asynchronous(retry=NEVER) as beating:
                    self._client = client
                    self._leases = Leases(beating, self.topic, self.node, self._lease_ms)
                    self._batcher = Batcher(client, self.topic, self.node)
                    await self._work()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            if self._synchronous is not None:
                self._synchronous.close()

    @contextmanager
    def _signals(self, wanted: bool) -> Iterator[None]:
        loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT) if wanted else ()
        for number in numbers:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def _work(self) -> None:
        taker = asyncio.ensure_future(self._take())
        keepers = [asyncio.ensure_future(self._leases.beat()), asyncio.ensure_future(self._leases.watch())]
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({taker, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stopping.set()
            self._free.set()
            # A stream stays open meanwhile: closing it would give the running jobs to others.
            await self._drain()
            await self._batcher.finish()
            if not self._stream:
                await asyncio.wait({taker}, timeout=LAST_CLAIM)
            for task in (taker, *keepers, stopping):
                task.cancel()
            await asyncio.gather(taker, *keepers, stopping, return_exceptions=True)
        if not taker.cancelled() and (error := taker.exception()) is not None:
            raise error

    async def _drain(self) -> None:
        """Wait for running jobs, and give back those that take too long."""
        runs = set(self._running.values())
        if not runs:
            return
        _, late = await asyncio.wait(runs, timeout=self._drain_seconds)
        if late:
            logger.warning("%d jobs are not done in time and are given back", len(late))
            for task in late:
                task.cancel()
            await asyncio.wait(late)

    async def _take(self) -> None:
        if self._stream:
            source = self._client.work(self.topic, self.node, max=self._concurrency, lease_ms=self._lease_ms)
            async with aclosing(source) as jobs:
                async for job in jobs:
                    # During a stop no job starts: pushed jobs go back when the stream is closed.
                    if not self._stopping.is_set():
                        self._begin(job)
            return
        claims = self._client.claims(
            self.topic,
            self.node,
            max=lambda: 0 if self._stopping.is_set() else self._concurrency - len(self._running),
            lease_ms=self._lease_ms,
            poll_seconds=self._poll_seconds,
        )
        async with aclosing(claims) as batches:
            async for batch in batches:
                for job in batch:
                    if self._stopping.is_set():
                        await self._batcher.settle(job, 0)
                    else:
                        self._begin(job)
                while len(self._running) >= self._concurrency and not self._stopping.is_set():
                    self._free.clear()
                    await self._free.wait()

    def _begin(self, job: ClientJob) -> None:
        # A job may come back after its lease. A heartbeat's answer has only its number and would extend the earlier
        # delivery, too, so that one is lost; it may still run: the new one waits for it.
        before = []
        for other in [other for other in self._running if other.seq == job.seq]:
            before.append(self._running[other])
            other.lose()
        self._leases.take(job)
        task = asyncio.ensure_future(self._run_one(job, before))
        self._running[job] = task
        if self._is_async:
            job.when_stopped(task.cancel)
        task.add_done_callback(lambda _: self._ended(job))

    def _ended(self, job: ClientJob) -> None:
        self._running.pop(job, None)
        self._leases.drop(job)
        self._free.set()

    def _call(self, job: ClientJob) -> BaseException | None:
        """Call the handler in its thread, unless the process stood still until the lease was over.

        What it raises is returned: a future does not take a ``StopIteration``, and others would end the event loop.
        """
        if not self._leases.is_good(job):
            job.lose()
            return None
        try:
            self._handler(job)
        except (Exception, Suspended) as error:  # noqa: BLE001
            return error
        except BaseException as error:  # noqa: BLE001
            failure = RuntimeError(f"The handler raised {error!r}")
            failure.__cause__ = error
            return failure
        return None

    def _delay_ms(self, job: ClientJob) -> int:
        try:
            return round(self._retry_delay(job) * 1000)
        except Exception:
            logger.exception("retry_delay gave no number of seconds for job %s: the default one is used", job.seq)
            return round(default_delay(job) * 1000)

    async def _run_one(self, job: ClientJob, before: list[asyncio.Task[None]]) -> None:
        delay_ms: int | None = None
        try:
            if before:
                await asyncio.wait(before)
            if not await self._leases.may_start(job):
                return
            if job.cancelled:
                await self._batcher.settle(job, 0)
                return
            if self._is_async:
                job.steps = AsyncJobSteps(self._client, self.node, job)
                await self._handler(job)
            else:
                self._synchronous = self._synchronous or self._template.synchronous()
                job.steps = JobSteps(self._synchronous, self.node, job)
                raised = await asyncio.get_running_loop().run_in_executor(self._threads, self._call, job)
                if raised is not None:
                    raise raised
        except Suspended:
            return
        except Again as again:
            delay_ms = round(again.delay * 1000)
        except asyncio.CancelledError:
            # The lease was lost, the job cancelled, or the worker stops: a function in a thread sees ``job.lost``.
            if not job.lost:
                job.when_stopped(None)
                job.lose()
                await self._batcher.settle(job, 0)
            raise
        except (Exception, SystemExit):
            delay_ms = 0 if job.cancelled else self._delay_ms(job)
            logger.exception("Job %s of %r failed; it is delivered again in %d ms", job.seq, self.topic, delay_ms)
        if job.lost:
            logger.warning("The lease of job %s was lost while it ran: it is delivered again", job.seq)
            return
        job.when_stopped(None)
        await self._batcher.settle(job, delay_ms)

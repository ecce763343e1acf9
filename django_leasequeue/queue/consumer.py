"""``Consumer``: runs the jobs of a queue with a function of the host, in threads of any process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from .. import twins
from ..conf.options import WorkerOptions
from ..exceptions import InvalidOption, QueueClosed
from ..twins import AsyncStartStop, Body, either
from ..worker.worker import Worker
from .base import arun, find_serializer, run
from .function_handler import Execution, FunctionHandler
from .queue import Queue
from .serializers import Serializer

logger = logging.getLogger("django_leasequeue")


class Consumer(AsyncStartStop):
    """Runs the jobs of one queue with a function, in threads of its own (a coroutine function: in an event loop).

    It is the machinery of ``runworker`` inside any process: heartbeats, waiting without polling, retries with the
    queue's backoff, batches. Sync functions have a Django connection per thread, as in a request::

        def resize(job, control):
            for step in steps(job.payload):
                control.raise_if_aborted()
                ...
            return {"url": url}

        with Consumer("images", resize, concurrency=4):
            ...

    Args:
        queue: the handle of the queue, or its name.
        handler: takes the ``ClaimedJob``; a second parameter gets the ``JobControl`` (``lost``, ``raise_if_aborted``,
            ``set_progress``). What it returns is the result. An exception fails the attempt; ``FailForGood`` fails the
            job, ``RetryLater(seconds)`` names the delay.
        concurrency: runs at once.
        timeout: seconds that a run may take; then ``JobTimeout`` is raised in it. ``None`` for no end.
        visibility_timeout: seconds after which a run counts as hung: it is told to stop (``lease_lost``), the next job
            takes its place, and its own may run again; what it still returns does not count. ``None`` for never: leases
            are kept for as long as runs last.
        after_execution: called with the ``Execution`` of every run before its end is stored; may change result, error
            and TTL. One that raises changes nothing and is logged. A function or a coroutine function.
        drain_timeout: seconds that ``stop`` waits for running jobs before it tells them to stop and gives them back.
        reaper: whether this process also does the reaper's duties while it leads.
        prefetch: jobs claimed ahead at most; 0 claims only what can start at once.
        worker_options: further options of ``WorkerOptions``.

    Raises:
        InvalidOption: an argument is not allowed.
    """

    def __init__(
        self,
        queue: Queue | str,
        handler: Callable[..., Any],
        *,
        concurrency: int = 1,
        timeout: float | None = None,
        visibility_timeout: float | None = None,
        after_execution: Callable[[Execution], Any] | None = None,
        drain_timeout: float = 25.0,
        reaper: bool = True,
        prefetch: int = 0,
        **worker_options: Any,
    ) -> None:
        self.queue: Queue = Queue(queue) if isinstance(queue, str) else queue
        if not callable(handler):
            raise InvalidOption(f"the handler must be a function; it is {handler!r}.")
        for name, seconds in (("timeout", timeout), ("visibility_timeout", visibility_timeout)):
            if seconds is not None and not seconds > 0:
                raise InvalidOption(f"{name} must be more than 0 seconds, or None; it is {seconds!r}.")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 1_000:
            raise InvalidOption(f"concurrency must be an integer from 1 to 1,000; it is {concurrency!r}.")
        self.handler = FunctionHandler(
            self.queue, handler, timeout=timeout, visibility_timeout=visibility_timeout, after_execution=after_execution
        )
        self._options = WorkerOptions(
            queues=(self.queue.name,),
            project=self.queue.project,
            concurrency=concurrency,
            prefetch=prefetch,
            drain_timeout=drain_timeout,
            timeout_grace=0,
            reaper=reaper,
            **worker_options,
        )
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether it takes jobs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def node(self) -> str:
        """The name under which it holds leases.

        Raises:
            QueueClosed: it has not been started.
        """
        if self._worker is None:
            raise QueueClosed("The consumer has not been started.")
        return self._worker.state.node

    def start(self) -> Self:
        """Begin to take jobs; return at once. The queue is made if it is missing.

        Raises:
            QueueNotFound: it is missing and may not be made.
            StorageError: the database cannot be reached.
        """
        twins.run(self._starting())
        return self

    async def astart(self) -> Self:
        """Async twin of ``start``."""
        await twins.arun(self._starting())
        return self

    def _starting(self) -> Body[None]:
        queue = self.queue
        if self.running:
            return
        if (yield either(queue.info, queue.ainfo)) is None:
            yield either(queue.make, queue.amake)
        self._start((yield either(run, arun, find_serializer(queue), queue.using)))

    def _start(self, serializer: Serializer) -> None:
        """Begin to take jobs of an existing queue, without asking the database."""
        self.handler.serializer = serializer
        options = replace(self._options, database=self.queue.using)
        # This process is not ours to replace.
        self._worker = Worker(options, node=self.queue._node or "", handler=self.handler, recycles=False)
        self._thread = threading.Thread(
            target=self._worker.run, name=f"leasequeue-consumer-{self.queue.name}", daemon=True
        )
        self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Take no more jobs, wait for the running ones, give the rest back.

        Jobs that were claimed but not started go back at once and keep their deliveries. Those that still run after
        ``timeout`` seconds are told to stop and given back.

        Args:
            timeout: seconds in place of ``drain_timeout``.

        Returns:
            Whether every job that had started has ended.
        """
        worker, thread = self._worker, self._thread
        if worker is None or thread is None:
            return True
        if timeout is not None:
            worker.state.options = replace(worker.state.options, drain_timeout=timeout)
        worker.state.ask_stop("the consumer was stopped")
        # 20 seconds beyond the drain, for the database to hear of the last ends.
        thread.join(worker.state.options.drain_timeout + 20)
        self._thread = None
        return not thread.is_alive() and not worker.state.held and worker.clean

    async def astop(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  (the same call as the thread's)
        """Async twin of ``stop``."""
        return await asyncio.to_thread(self.stop, timeout)

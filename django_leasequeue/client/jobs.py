"""The jobs of a worker: their leases, acks in batches, and ``job.steps`` in a handler of ``Worker``.

A worker renews leases, and knows by its own clock when they end. Steps, sleeps and waits are done once over all
deliveries.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from ..exceptions import EventTimeout, InvalidOption
from ..twins import Body, Either, Twins, either, sync, twin
from .messages import ClientJob, LeaseLost, Suspension
from .plans import logger

if TYPE_CHECKING:
    from .client import AsyncClient, Client

MAX_BATCH = 1_000
#: Heartbeats during one lease: two may fail.
BEATS = 3
#: Seconds before the retry of a failed heartbeat.
AFTER_FAILURE = 1.0
#: Seconds before the end of a lease at which its job becomes lost and does not start; and the largest share of a lease.
NOTICE, NOTICE_SHARE = 1.0, 0.25
#: Seconds between checks for leases that end.
WATCH_INTERVAL = 0.05


class Leases:
    """Extends the leases of jobs, and marks jobs as lost before their lease is over.

    Deadlines are on the server's clock. The times of a heartbeat's request and answer bound its difference to ours, so
    a delayed message is known to be old.
    """

    def __init__(self, client: AsyncClient, topic: str, node: str, lease_ms: int) -> None:
        self._client = client
        self._topic = topic
        self._node = node
        self._lease_ms = lease_ms
        self._seconds = lease_ms / 1000
        self._notice = min(NOTICE, NOTICE_SHARE * self._seconds)
        #: Until when each lease surely lasts (monotonic); ``None``: unknown before the job starts.
        self._good_until: dict[ClientJob, float | None] = {}
        #: The smallest possible difference between our monotonic clock and the server's clock, in seconds.
        self._clock_difference: float | None = None
        self._asking = asyncio.Lock()

    def take(self, job: ClientJob) -> None:
        self._good_until[job] = None

    def drop(self, job: ClientJob) -> None:
        self._good_until.pop(job, None)

    async def may_start(self, job: ClientJob) -> bool:
        """Return whether a job's lease lasts for a while; if that is not sure, try to extend it first."""
        if self._good_until[job] is None and self._clock_difference is not None:
            left = job.deadline.timestamp() + self._clock_difference - time.monotonic()
            if left > self._seconds:
                # Longer than any lease: the server's clock was set forward since the last heartbeat.
                self._clock_difference = None
            # A short time is not noted: the difference errs on the safe side, and the job may not be lost.
            elif left > self._notice:
                self._good_until[job] = time.monotonic() + left
        if not self.is_good(job):
            async with self._asking:
                doubtful = [other for other, known in self._good_until.items() if known is None or other is job]
                if not self.is_good(job) and not job.lost:
                    await self._extend([other for other in doubtful if not other.lost][:MAX_BATCH])
            if not self.is_good(job):
                job.lose()
        return not job.lost

    def is_good(self, job: ClientJob) -> bool:
        """Return whether a job's lease surely lasts for a while. From any thread."""
        good_until = self._good_until.get(job)
        return good_until is not None and good_until > time.monotonic() + self._notice

    async def beat(self) -> None:
        """Extend the leases of all jobs, endlessly."""
        usual = self._seconds / BEATS
        pause = usual
        while True:
            await asyncio.sleep(pause)
            pause = usual
            held = [job for job in self._good_until if not job.lost]
            for start in range(0, len(held), MAX_BATCH):
                if not await self._extend(held[start : start + MAX_BATCH]):
                    pause = min(usual, AFTER_FAILURE)

    async def watch(self) -> None:
        """Mark jobs as lost before their leases are over, endlessly, also while a heartbeat hangs."""
        while True:
            await asyncio.sleep(min(WATCH_INTERVAL, self._notice / 2))
            now = time.monotonic()
            for job, good_until in list(self._good_until.items()):
                if good_until is not None and good_until <= now + self._notice and not job.lost:
                    logger.warning("The lease of job %s ends and could not be extended: it is lost", job.seq)
                    job.lose()

    async def _extend(self, jobs: Sequence[ClientJob]) -> bool:
        """Extend leases; return whether the server answered."""
        sent = time.monotonic()
        try:
            settled = await self._client.extend(self._topic, self._node, jobs, self._lease_ms)
        except Exception as error:  # noqa: BLE001  (without heartbeats all leases end)
            logger.warning("Cannot extend the leases of %d jobs: %s", len(jobs), error)
            return False
        answered = time.monotonic()
        for job in jobs:
            if job.seq in settled.deadlines and job in self._good_until:
                self._good_until[job] = sent + self._seconds
        for deadline in settled.deadlines.values():
            # The server's clock showed this time between the request and its answer.
            said = deadline.timestamp() - self._seconds
            if self._clock_difference is None or not sent - said <= self._clock_difference <= answered - said:
                self._clock_difference = sent - said
        return True


class Batcher:
    """Sends acks and nacks in batches, each at once if none is under way."""

    def __init__(self, client: AsyncClient, topic: str, node: str) -> None:
        self._client, self._place = client, (topic, node)
        #: By ``delay_ms`` of a nack, ``None`` for acks: ended jobs, and futures that are done when they are sent.
        self._waiting: dict[int | None, list[tuple[ClientJob, asyncio.Future[None]]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def settle(self, job: ClientJob, delay_ms: int | None) -> None:
        """Ack or nack a job; a failure is logged: its lease may be over, or the server unreachable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(delay_ms, []).append((job, done))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())
        await done

    async def finish(self) -> None:
        while self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while self._waiting:
            # The batch that has waited longest.
            delay_ms = next(iter(self._waiting))
            ended = self._waiting.pop(delay_ms)
            for start in range(0, len(ended), MAX_BATCH):
                batch = ended[start : start + MAX_BATCH]
                await self._send([job for job, _ in batch], delay_ms)
                for _, done in batch:
                    if not done.done():
                        done.set_result(None)

    async def _send(self, jobs: list[ClientJob], delay_ms: int | None) -> None:
        try:
            if delay_ms is None:
                settled = await self._client.ack(*self._place, jobs)
            else:
                settled = await self._client.nack(*self._place, jobs, delay_ms=delay_ms)
            # After a lost answer the first request may have settled them.
            if settled.skipped and not settled.repeated:
                logger.warning(
                    "The leases of jobs %s were over: they are delivered again", sorted(set(settled.skipped))
                )
        except Exception as error:  # noqa: BLE001  (later batches must not stop)
            logger.warning(
                "Cannot settle %d jobs; they are delivered again when their leases end: %s", len(jobs), error
            )


MAX_NAME = 200


class Suspended(BaseException):
    """The job is suspended until its time or its event. Raised in its handler; neither ack nor nack the job."""


class _Steps(Twins):
    """The common part of steps in functions and in coroutines."""

    def __init__(self, client: Client | AsyncClient, node: str, job: ClientJob) -> None:
        self._client, self._node, self._job = client, node, job
        self._names: Counter[str] = Counter()
        self._known: dict[str, Any] | None = None

    def step_key(self, name: str) -> str:
        """Return a text that is unique for a step of a job and equal in each delivery: an external idempotency key."""
        return f"{self._job.topic}:{self._job.seq}:{name}"

    def _unique_name(self, name: str) -> str:
        if "#" in name:
            raise InvalidOption(f"name must have no '#'; it is {name!r}.")
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}#{self._names[name]}"

    @contextmanager
    def _under_lease(self) -> Iterator[None]:
        try:
            yield
        except LeaseLost:
            self._job.lose()
            raise

    def _ask(self, call: str, *args: Any, **kwargs: Any) -> Either:
        """Return the step that calls the client for the job."""
        method = partial(getattr(self._client, call), self._node, self._job, *args, **kwargs)
        return either(method, method)

    @staticmethod
    def _over(waited: Suspension, event: str | None = None) -> Any:
        if waited.suspended:
            raise Suspended
        if waited.timed_out:
            raise EventTimeout(event or "")
        return waited.payload


async def _value(function: Callable[[], Any]) -> Any:
    """Return the value of a function or coroutine function."""
    value = function()
    return await value if inspect.isawaitable(value) else value


class JobSteps(_Steps):
    """The steps of a job in a function."""

    @sync
    def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Body[Any]:
        """Run a part of the job once: later deliveries get its recorded value instead.

        It runs again if the worker dies between its end and its record: give the other side ``step_key``. ``name`` has
        1 to 200 characters, without ``#``; the same name again in one run is another step (``name#2``). ``function``
        returns JSON; in a coroutine it may be a coroutine function. ``LeaseLost``: the step is not recorded.
        """
        unique_name = self._unique_name(name)
        with self._under_lease():
            if self._known is None:
                self._known = yield self._ask("read_steps")
            if unique_name in self._known:
                return self._known[unique_name]
            work = partial(function, *args, **kwargs)
            value = yield either(work, partial(_value, work))
            return (yield self._ask("record_step", unique_name, value))

    @sync
    def sleep(self, /, name: str, **units: float) -> Body[None]:
        """Suspend the job for a time, in the units of ``timedelta``."""
        milliseconds = round(timedelta(**units).total_seconds() * 1_000)
        with self._under_lease():
            self._over((yield self._ask("suspend", name=self._unique_name(name), sleep_ms=milliseconds)))

    @sync
    def sleep_until(self, name: str, when: datetime) -> Body[None]:
        """Suspend the job until a time: see ``sleep``."""
        with self._under_lease():
            self._over((yield self._ask("suspend", name=self._unique_name(name), until=when)))

    @sync
    def wait_for(self, event: str, timeout: timedelta | float | None = None) -> Body[Any]:
        """Suspend the job until an event is emitted; return its payload.

        ``EventTimeout``: it did not come in time.
        """
        # The server's default name; a repeated wait gets a number.
        shown = f"event {event}".replace("#", "%23")
        shown = shown if len(shown) <= MAX_NAME else f"event {hashlib.sha256(event.encode()).hexdigest()}"
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        asked = {} if seconds is None else {"timeout_ms": round(seconds * 1_000)}
        with self._under_lease():
            return self._over((yield self._ask("suspend", event=event, name=self._unique_name(shown), **asked)), event)


class AsyncJobSteps(_Steps):
    """The steps of a job in a coroutine function: see ``JobSteps``."""

    step = twin(JobSteps.step, "step")
    sleep = twin(JobSteps.sleep, "sleep")
    sleep_until = twin(JobSteps.sleep_until, "sleep_until")
    wait_for = twin(JobSteps.wait_for, "wait_for")

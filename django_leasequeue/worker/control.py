"""The interface between the worker and its handler: the handler runs jobs, ``JobControl`` is a job's side of it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from ..engine import Failure, LeasedJob, codec
from ..engine.jobs.results import MAX_PROGRESS_BYTES
from ..exceptions import LeaseQueueError, NotBegun, PayloadTooLarge
from . import forked
from .durable import DurableControl
from .steps import JobSteps

Reason = Literal["", "lease_lost", "cancelled", "timeout", "stopping"]
#: The outcome of a run: done, failed for good, failed and to be retried, dead after the last try.
EndingName = Literal["completed", "failed", "failing", "dead"]


class JobAborted(LeaseQueueError):
    """The job must stop; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The job must stop: {reason}.")


class JobTimeout(JobAborted):
    """The job ran longer than its soft timeout. Raised into the running handler."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__("timeout")
        #: The timeout; ``None`` inside the handler that it was raised into.
        self.seconds = seconds
        if seconds is not None:
            self.args = (f"The job ran longer than its timeout of {seconds:g} s.",)


class HeldLease(Protocol):
    """A lease that a worker holds."""

    @property
    def until(self) -> float:
        """Until when it surely lasts (monotonic)."""

    @property
    def claimed(self) -> float:
        """When its jobs were claimed (monotonic)."""


class _Unbounded:
    until = claimed = math.inf


UNBOUNDED: HeldLease = _Unbounded()
_guard = threading.Lock()


class JobControl(DurableControl):
    """A running job's interface to its worker: reason to stop, progress, steps. The worker makes one for each run."""

    # Defaults of the class: most runs set none of these, and ten assignments are a good part of a short run.
    #: The reason to stop: ``lease_lost``, ``cancelled``, ``timeout``, ``stopping``; empty while there is none.
    reason: Reason = ""
    _event: threading.Event | None = None
    _calls: tuple[Callable[[], object], ...] = ()
    _progress: list[Any] | None = None
    #: For handlers to set: bytes to keep with the result, and for how long.
    result_body: bytes | None = None
    result_ttl_ms: int | None = None
    #: How long the handler ran; for the worker.
    ran_ms: int | None = None
    #: The exception that ended the run, for its log line.
    error: BaseException | None = None
    #: Aborts the run when its lease is lost or its time is over; for the worker.
    on_lost: Callable[[], object] | None = None
    #: The lease, as the worker knows it; for handlers whose run goes on elsewhere.
    lease: HeldLease = UNBOUNDED
    #: Restarts the timeout at a time (monotonic); for handlers with a long preparation.
    restart_clock: Callable[[float], object] | None = None
    #: The alias of the job's database, where it is not that of the settings.
    using: str | None = None
    _steps: JobSteps | None = None
    #: Until when its function may begin (monotonic); for the worker.
    begins_by = math.inf
    #: Whether the handler settles the job in the transaction of the run, and whether it has done so; for the worker.
    ends_in_transaction = settled = False
    #: Whether the run's own process has died; for the worker.
    process_died = False
    #: Of one call for many jobs: the control of each of them.
    members: Sequence[JobControl] = ()

    def __init__(self, job: LeasedJob, node: str, using: str | None = None) -> None:
        self.job = job
        self.node = node
        if using is not None:
            self.using = using

    @property
    def lost(self) -> bool:
        """Whether to stop: the lease is gone (expired, taken), or a timeout or the stop of the worker came."""
        return bool(self.reason)

    @property
    def event(self) -> threading.Event:
        with _guard:
            if self._event is None:
                self._event = threading.Event()
                if self.reason:
                    self._event.set()
                self._calls += (self._event.set,)
            return self._event

    async def wait_aborted(self) -> Reason:
        """Wait until the job is to stop, in a coroutine; return the reason."""
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        with _guard:
            if self.reason:
                return self.reason
            self._calls += (partial(loop.call_soon_threadsafe, stopping.set),)
        await stopping.wait()
        return self.reason

    def raise_if_aborted(self) -> None:
        """Raise ``JobAborted`` (``JobTimeout`` after a soft timeout) if the job is to stop."""
        if self.reason:
            raise JobTimeout if self.reason == "timeout" else JobAborted(self.reason)

    def begin(self) -> None:
        """Raise if the job is to stop or begins too late; for handlers, right before they call the function."""
        if self.reason:
            self.raise_if_aborted()
        if self.begins_by < math.inf and time.monotonic() > self.begins_by:
            error = NotBegun("its preparation took longer than its rate allows; next time it begins however late")
            error.back_after_ms = 0
            raise error

    @property
    def _done(self) -> JobSteps:
        if self._steps is None:
            self._steps = JobSteps(self)
        return self._steps

    def to_undo(self, *, unknown: bool = False) -> JobSteps | None:
        """Return the steps if there are some to undo; ``unknown``: this run does not know. For handlers."""
        return self._done if unknown or (self._steps is not None and self._steps.undo_note is not None) else None

    def returned(self) -> None:
        """Check a task that has returned: it may have caught ``Suspended``, or skipped steps of an earlier delivery."""
        forked.leave_if_child()
        if self.suspension is not None:
            self.raise_if_suspended()
        if self._steps is not None:
            self._steps.warn_of_unknown()

    def set_progress(self, value: Any) -> None:
        """Report how far the job is: any JSON.

        The last value counts; the worker stores it with the next renewal of leases and at the job's end.

        Raises:
            InvalidOption: it is not JSON, or more than 64 KiB.
        """
        if len((text := codec.dumps(value, "the progress")).encode()) > MAX_PROGRESS_BYTES:
            raise PayloadTooLarge(f"the progress of a job is at most {MAX_PROGRESS_BYTES} bytes of JSON.")
        self._progress = [codec.loads(text)]  # a copy: the job may change its own meanwhile

    def take_progress(self) -> list[Any] | None:
        """Return the progress since the last call, in a list, or ``None``. For the worker."""
        value, self._progress = self._progress, None
        return value

    def keep_progress(self, value: Any) -> None:
        """Put back a progress that could not be stored, unless there is a newer one. For the worker."""
        self._progress = self._progress or [value]

    def abort(self, reason: Reason) -> None:
        """Ask the job to stop; the first reason stays. For the worker."""
        with _guard:
            if self.reason:
                return
            self.reason = reason
            calls = self._calls
        if reason in ("lease_lost", "cancelled") and self.on_lost is not None:
            calls += (self.on_lost,)
        for call in calls:
            with suppress(RuntimeError):  # its loop is closed
                call()


class Retry(NamedTuple):
    """Try the job again after ``delay_ms`` (``None``: the queue's backoff), as long as it has deliveries left."""

    delay_ms: int | None = None


class GiveUp(NamedTuple):
    """Fail the job for good, with its result kept: no more tries."""


class Handler(Protocol):
    """The kind of object that runs a worker's jobs. One instance a process; called from many threads at once.

    The class that the option ``handler`` names is called with ``project`` (the tenant) as its only argument.
    """

    def is_async(self, job: LeasedJob) -> bool:
        """Return whether the job runs in the event loop (``arun``) or in a thread (``run``). Must not raise."""

    def timeout(self, job: LeasedJob, default: float | None = None) -> tuple[float | None, float | None]:
        """Return the soft and the hard timeout of the job in seconds, ``None`` for none. Must not raise.

        Without a hard one the job may go on for the worker's ``timeout_grace`` after the soft one. ``default``: the
        worker's soft timeout for jobs without their own; without one the argument is left out.
        """

    def run(self, job: LeasedJob, control: JobControl) -> str | None:
        """Run the job, in a thread of the worker; return its result as JSON text (``None``: null)."""

    async def arun(self, job: LeasedJob, control: JobControl) -> str | None:
        """Run the job in the worker's event loop; return its result as JSON text (``None``: null)."""

    def failed(self, job: LeasedJob, error: BaseException) -> tuple[Failure, Retry | GiveUp]:
        """Return the failure to keep and whether to retry. Runs in the thread of the job."""

    def settled(
        self,
        job: LeasedJob,
        ending: EndingName,
        *,
        result_json: str | None = None,
        failure: Failure | None = None,
        available_at: datetime | None = None,
    ) -> None:
        """Receive the outcome that the database has accepted; send signals here.

        The worker's acknowledging thread calls it once for each run, so it must cost nothing without receivers.
        ``ending``: ``completed``, with the value of ``run``; or, with the failure of ``failed``, ``failed`` (for good,
        by ``GiveUp``), ``failing`` (a retry at ``available_at``, ``None``: at once), or ``dead`` (no retries left).
        """

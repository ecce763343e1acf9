"""The seam between the worker and what runs its jobs: a handler, and the control by which a job asks and tells."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from ..engine import Failure, LeasedJob, codec
from ..engine.jobs.results import MAX_PROGRESS_BYTES
from ..exceptions import LeaseQueueError, NotBegun, PayloadTooLarge
from .durable import DurableControl
from .steps import JobSteps

Reason = Literal["", "lease_lost", "cancelled", "timeout", "stopping"]
#: What became of a job: done, failed for good, failed and to be tried again, dead after its last try.
EndingName = Literal["completed", "failed", "failing", "dead"]


class JobAborted(LeaseQueueError):
    """The job was told to stop; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The job was told to stop: {reason}.")


class JobTimeout(JobAborted):
    """The job ran longer than its soft timeout. Raised into the running handler."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__("timeout")
        #: The timeout; ``None`` while it is not known, in the handler it was raised into.
        self.seconds = seconds
        if seconds is not None:
            self.args = (f"The job ran longer than its timeout of {seconds:g} s.",)


_guard = threading.Lock()


class JobControl(DurableControl):
    """The means by which a running job asks and tells its worker. One per run, made by the worker."""

    # Values of the class until a run has its own: most runs never do, and setting ten for each is a good part of a run.
    #: The reason to stop: ``lease_lost``, ``cancelled``, ``timeout``, ``stopping``; empty while there is none.
    reason: Reason = ""
    _event: threading.Event | None = None
    _calls: tuple[Callable[[], object], ...] = ()
    _progress: list[Any] | None = None
    #: A handler may set these: bytes to keep with the result, and how long to keep it.
    result_body: bytes | None = None
    result_ttl_ms: int | None = None
    #: How long the handler ran; for the worker.
    ran_ms: int | None = None
    #: The exception that ended the run, for its log line.
    error: BaseException | None = None
    #: Breaks the run off when its lease is lost or its time is over; for the worker.
    on_lost: Callable[[], object] | None = None
    #: The alias of the job's database, where it is not that of the settings.
    using: str | None = None
    _steps: JobSteps | None = None
    #: Until when its function may begin (monotonic); for the worker.
    begins_by = math.inf
    #: Whether the handler has ended the job itself, in a transaction of its own; for the worker.
    settled = False

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
        """Raise if the job is to stop, or must not begin so late; for handlers, right before they call the function."""
        if self.reason:
            self.raise_if_aborted()
        if self.begins_by < math.inf and time.monotonic() > self.begins_by:
            late = "it was prepared for longer than its rate allows; the next time it begins however long it takes"
            error = NotBegun(late)
            error.back_after_ms = 0
            raise error

    @property
    def _done(self) -> JobSteps:
        if self._steps is None:
            self._steps = JobSteps(self)
        return self._steps

    def returned(self) -> None:
        """Note that the task has returned: it may have caught ``Suspended``, or not know some of its steps any more."""
        if self.suspension is not None:
            self.raise_if_suspended()
        if self._steps is not None:
            self._steps.warn_of_unknown()

    def set_progress(self, value: Any) -> None:
        """Say how far the job is: any JSON.

        The last value counts; it is stored with the next renewal of leases, and at the job's end.

        Raises:
            InvalidOption: it is not JSON, or more than 64 KiB.
        """
        if len(codec.dumps(value, "the progress").encode()) > MAX_PROGRESS_BYTES:
            raise PayloadTooLarge(f"the progress of a job is at most {MAX_PROGRESS_BYTES} bytes of JSON.")
        self._progress = [value]

    def take_progress(self) -> list[Any] | None:
        """Return the progress that was said since the last call, in a list, or ``None``. For the worker."""
        said = self._progress
        if said is not None:
            self._progress = None
        return said

    def keep_progress(self, value: Any) -> None:
        """Take back a progress that could not be stored, unless there is a newer one. For the worker."""
        self._progress = self._progress or [value]

    def abort(self, reason: Reason) -> None:
        """Tell the job to stop; the first reason stays. For the worker."""
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

    def timeout(self, job: LeasedJob) -> tuple[float | None, float | None]:
        """Return the soft and the hard timeout of the job in seconds, ``None`` for none. Must not raise.

        Without a hard one the job may go on for the worker's ``timeout_grace`` after the soft one.
        """

    def run(self, job: LeasedJob, control: JobControl) -> str | None:
        """Run the job, in a thread of the worker; return its result as JSON text (``None``: null)."""

    async def arun(self, job: LeasedJob, control: JobControl) -> str | None:
        """Run the job in the worker's event loop; return its result as JSON text (``None``: null)."""

    def failed(self, job: LeasedJob, error: BaseException) -> tuple[Failure, Retry | GiveUp]:
        """Say what is kept of an error and whether the job is tried again. Runs in the thread of the job."""

    def settled(
        self,
        job: LeasedJob,
        ending: EndingName,
        *,
        result_json: str | None = None,
        failure: Failure | None = None,
        available_at: datetime | None = None,
    ) -> None:
        """Hear what the database has accepted: here signals are sent.

        Called once a run, from the worker's acknowledging thread, for every job: it must cost nothing when no receiver
        listens. ``ending``: ``completed``, with what ``run`` returned; or, with what ``failed`` made of the error,
        ``failed`` (for good, by ``GiveUp``), ``failing`` (to be tried again at ``available_at``, ``None``: at once), or
        ``dead`` (it was tried for the last time).
        """

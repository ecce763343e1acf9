"""The control of a running job: by it the job asks and tells its worker, runs its steps, and gives its place up."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, TypeVar

from asgiref.sync import sync_to_async

from ..engine import LeasedJob, codec
from ..engine.jobs.results import MAX_PROGRESS_BYTES
from ..exceptions import InvalidOption, LeaseQueueError, NotBegun, PayloadTooLarge
from .steps import AtomicStep, JobSteps

#: Why a running job is to stop; "" while it is not.
Reason = Literal["", "lease_lost", "cancelled", "timeout", "stopping"]


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


class Suspended(BaseException):
    """The job gives its place up until its time or its event comes. Raised in the handler; it is no failure."""


class Crashed(BaseException):
    """The run ends as if its process had died here: in tests."""


class Replaced(BaseException):
    """The job is to be replaced by another call. Raised in the handler; it is no failure."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call


class Suspension(NamedTuple):
    """How a suspended job goes on: after ``delay_ms``, or before if it ``waits`` for an event that comes."""

    delay_ms: int
    waits: bool
    #: Whether it keeps the slot of its limit.
    keeps_slot: bool


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Result(Protocol[T_co]):
    """The result of another task or of a workflow, as a task waits for it."""

    @property
    def id(self) -> str: ...

    def ended_event(self) -> str: ...

    def outcome(self) -> tuple[T_co] | None: ...


class Call(Protocol):
    """A signature of another task."""

    @property
    def task(self) -> Any: ...

    @property
    def args(self) -> Sequence[Any]: ...

    @property
    def kwargs(self) -> Mapping[str, Any]: ...


_guard = threading.Lock()


class _TooLate(NotBegun):
    back_after_ms = 0


class JobControl:
    """The means by which a running job asks and tells its worker. One per run, made by the worker.

    Args:
        job: the job.
        node: the worker's identity.
    """

    # Values of the class until a run has its own: most runs never do, and setting ten for each is a good part of a run.
    _reason: Reason = ""
    _event: threading.Event | None = None
    _waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] | None = None
    _progress: list[Any] | None = None
    #: A handler may set these: bytes to keep with the result, and how long to keep it.
    result_body: bytes | None = None
    result_ttl_ms: int | None = None
    #: How long the handler ran; for the worker.
    ran_ms: int | None = None
    #: The exception that ended the run, for its log line.
    error: BaseException | None = None
    #: Breaks the run off when its lease is lost; for the worker.
    on_lost: Callable[[], object] | None = None
    #: The alias of the job's database, where it is not that of the settings.
    using: str | None = None
    _steps: JobSteps | None = None
    #: Set when the job gives its place up; for the worker.
    suspension: Suspension | None = None
    #: Whether it keeps the slot of its limit when it is suspended; for handlers.
    keeps_slot = False
    #: The step behind whose record the run breaks off; for tests.
    crash_after: str | None = None
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
        return bool(self._reason)

    @property
    def reason(self) -> Reason:
        """The reason to stop: ``lease_lost``, ``cancelled``, ``timeout``, ``stopping``; empty while there is none."""
        return self._reason

    @property
    def event(self) -> threading.Event:
        """Set when the job is to stop: for handlers that wait."""
        with _guard:
            if self._event is None:
                self._event = threading.Event()
                if self._reason:
                    self._event.set()
            return self._event

    async def wait_aborted(self) -> Reason:
        """Wait until the job is to stop, in a coroutine; return the reason."""
        waiting = (asyncio.get_running_loop(), asyncio.Event())
        with _guard:
            if self._reason:
                return self._reason
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiting)
        await waiting[1].wait()
        return self._reason

    def raise_if_aborted(self) -> None:
        """Raise ``JobAborted`` (``JobTimeout`` after a soft timeout) if the job is to stop."""
        if self._reason:
            raise JobTimeout if self._reason == "timeout" else JobAborted(self._reason)

    def begin(self) -> None:
        """Raise if the job is to stop, or must not begin so late; for handlers, right before they call the function."""
        self.raise_if_aborted()
        if time.monotonic() > self.begins_by:
            raise _TooLate(
                "it was prepared for longer than its rate allows; the next time it begins however long it takes"
            )

    @property
    def _done(self) -> JobSteps:
        if self._steps is None:
            self._steps = JobSteps(self)
        return self._steps

    def step(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        atomic: bool = False,
        retries: int = 0,
        backoff: float = 0.0,
        **kwargs: Any,
    ) -> T:
        """Run a part of the job once: a later delivery of the job gets what it returned, and does not run it again.

        A plain step is done at least once: a worker that dies between its end and its record runs it again. An atomic
        one is exactly once for rows of the job's database: they and the record are one transaction, which a worker
        that has lost the lease cannot commit.

        Args:
            name: 1 to 200 characters, without ``#``; the same name again in one run is another step (``name#2``).
            function: what to run. It returns JSON, as large as a result may be.
            *args: its arguments.
            atomic: run it inside ``transaction.atomic()`` of the job's database. Django's other databases may be read.
            retries: how often it is tried again in place when it raises, at most 100.
            backoff: seconds between two tries.
            **kwargs: its keyword arguments.

        Returns:
            What the function returned, as JSON has it: a tuple is a list.

        Raises:
            LeaseLost: the lease is over, and the step is not kept; of an atomic one nothing is.
            InvalidOption: an argument is not allowed, or an atomic step writes elsewhere.
            PayloadTooLarge: it returned too much. What the function raises is raised too; the step is not done then.
        """
        found: T = self._done.run(
            name, partial(function, *args, **kwargs), atomic=atomic, retries=retries, backoff=backoff
        )
        return found

    async def astep(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        atomic: bool = False,
        retries: int = 0,
        backoff: float = 0.0,
        **kwargs: Any,
    ) -> Any:
        """See ``step``; ``function`` may be a coroutine function, unless the step is atomic."""
        return await self._done.arun(
            name, partial(function, *args, **kwargs), atomic=atomic, retries=retries, backoff=backoff
        )

    def atomic_step(self, name: str) -> AtomicStep:
        """Run a block as an atomic step: ``with current().atomic_step("reserve") as step``.

        The block runs in ``transaction.atomic()`` of the job's database, and ``step.value``, which it sets, is kept in
        that transaction: see ``step``. Where ``step.done`` is true an earlier delivery has done it and ``step.value``
        is what it kept; the block is entered all the same, and may not write.

        Args:
            name: as of ``step``.

        Raises:
            LeaseLost: at the end of the block: the lease is over, and nothing of it is kept.
            InvalidOption: an argument is not allowed, the block writes elsewhere or once more, or it is in a coroutine.
            PayloadTooLarge: the value is too large.
        """
        return AtomicStep(name, partial(self._done.block, name))

    def step_key(self, name: str) -> str:
        """Return a text that is the same in each delivery of the job, and another for each step and each job.

        For the other side of a plain step, such as a payment provider's idempotency key.
        """
        return self._done.key(name)

    def sleep(self, name: str, **units: float) -> None:
        """Give the thread up and go on later: the task is called again, and what its steps returned is there.

        It is neither a failure nor a delivery that counts. The time is kept first: who is called again before it has
        come waits for the rest only.

        Args:
            name: 1 to 200 characters, as of a step: the same name again in one run is another sleep.
            **units: of ``timedelta``: ``hours=24``; at most 100 years.

        Raises:
            InvalidOption: an argument is not allowed, or a transaction is open, which would stay open.
            LeaseLost: the lease is over.
        """
        self._done.wait(name, delay=_span(units))

    async def asleep(self, name: str, **units: float) -> None:
        """See ``sleep``."""
        await sync_to_async(self._done.wait)(name, delay=_span(units))

    def sleep_until(self, name: str, when: datetime) -> None:
        """Go on at a time: see ``sleep``.

        Args:
            name: as of a step.
            when: with a time zone.
        """
        self._done.wait(name, until=when)

    async def asleep_until(self, name: str, when: datetime) -> None:
        """See ``sleep_until``."""
        await sync_to_async(self._done.wait)(name, until=when)

    def wait_for(self, event: str, timeout: timedelta | float | None = None) -> Any:
        """Give the thread up until an event is emitted: see ``sleep``, and ``django_leasequeue.tasks.emit``.

        Args:
            event: its name, 1 to 512 bytes; one that was emitted before, and is kept still, counts.
            timeout: seconds; ``None`` for 100 years.

        Returns:
            Its payload.

        Raises:
            EventTimeout: it did not come in time; in each later delivery too.
            InvalidOption, LeaseLost: as ``sleep``.
        """
        return self._done.wait_for(event, timeout)

    async def await_for(self, event: str, timeout: timedelta | float | None = None) -> Any:  # noqa: ASYNC109
        """See ``wait_for``."""
        return await sync_to_async(self._done.wait_for)(event, timeout)

    def suspend(self, delay_ms: int, *, waits: bool) -> NoReturn:
        """Give the job's place up. For its steps."""
        self.suspension = Suspension(delay_ms, waits, self.keeps_slot)
        raise Suspended

    def wait_for_result(self, result: Result[T], timeout: timedelta | float | None = None) -> T:
        """Give the thread up until another task or a workflow has ended: see ``sleep``.

        Args:
            result: of the other task, or of the workflow (``get_workflow_result``).
            timeout: seconds; ``None`` for 100 years.

        Returns:
            What it returned: as ``wait`` of its result does.

        Raises:
            JobFailed: it has failed. JobCancelled: it is gone, without a result. EventTimeout: it goes on.
            InvalidOption, LeaseLost: as ``sleep``.
        """
        value: T = self._done.wait_for_result(result, timeout)
        return value

    async def await_for_result(
        self,
        result: Result[T],
        timeout: timedelta | float | None = None,  # noqa: ASYNC109
    ) -> T:
        """See ``wait_for_result``."""
        value: T = await sync_to_async(self._done.wait_for_result)(result, timeout)
        return value

    def start(self, call: Call, name: str | None = None) -> Any:
        """Enqueue a task once over all deliveries of this one: an atomic step.

        Args:
            call: a signature, ``other.s(1)``.
            name: of the step; ``None``: that of the task.

        Returns:
            The other task's result, the same in each delivery.

        Raises:
            LeaseLost, InvalidOption: as ``step``.
        """
        task = call.task
        id = self.step(name or f"start {task.name}", lambda: task.enqueue(*call.args, **call.kwargs).id, atomic=True)
        return task.get_result(id)

    async def astart(self, call: Call, name: str | None = None) -> Any:
        """See ``start``."""
        return await sync_to_async(self.start)(call, name)

    def replace(self, call: Any) -> NoReturn:
        """End this run, and have another call take the task's place: what it returns is what this task returns.

        What waits for the task or comes after it in a workflow waits for that call. Its failure is the task's, and is
        not tried again here; who cancels the task cancels it. It is enqueued once over all deliveries of the task.

        Args:
            call: a signature, ``other.s(1)``, a chain, a group or a chord; up to 100 may replace one another.
        """
        raise Replaced(call)

    def passed(self, step: str) -> None:
        """Break the run off behind a step, if a test wants that. For its steps."""
        if self.crash_after == step:
            raise Crashed

    def find_step(self, name: str) -> Any:
        """Return what an earlier delivery has kept of a step, ``None`` if there is none. For handlers."""
        return self._done.kept(name)

    def raise_if_suspended(self) -> None:
        """Raise ``Suspended`` again if the task has caught it. For the steps."""
        if self.suspension is not None:
            raise Suspended

    def returned(self) -> None:
        """Note that the task has returned: it may have caught ``Suspended``, or not know some of its steps any more."""
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
            if self._reason:
                return
            self._reason = reason
            event, waiters = self._event, self._waiters or ()
        if event is not None:
            event.set()
        calls: list[Callable[[], object]] = [
            partial(loop.call_soon_threadsafe, waiting.set) for loop, waiting in waiters
        ]
        if reason in ("lease_lost", "cancelled") and self.on_lost is not None:
            calls.append(self.on_lost)
        for call in calls:
            with suppress(RuntimeError):  # its loop is closed
                call()


def _span(units: dict[str, float]) -> timedelta:
    try:
        return timedelta(**units)
    except (TypeError, OverflowError, ValueError) as error:
        raise InvalidOption(f"a sleep takes the units of timedelta, such as hours=24: {error}.") from error

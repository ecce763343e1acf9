"""Durable control of a running job: steps, sleeps, waits for events, replacement by another call."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import Any, Concatenate, NamedTuple, NoReturn, ParamSpec, Protocol, TypeVar

from asgiref.sync import sync_to_async

from ..engine import LeasedJob, clock
from ..engine.jobs.steps import check_event_name, event_step
from ..engine.limits import MAX_SPAN_MS
from ..exceptions import EventTimeout, InvalidOption
from .atomic import AtomicStep
from .steps import JobSteps
from .undo import Undo

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Suspended(BaseException):
    """The job is suspended until its time or its event comes. Raised in the handler; not a failure."""


class Crashed(BaseException):
    """The run ends as if its process had died here: in tests."""


class Replaced(BaseException):
    """The job is to be replaced by another call. Raised in the handler; not a failure."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call


class Suspension(NamedTuple):
    """When a suspended job continues: after ``delay_ms``, or earlier if it ``waits`` for an event."""

    delay_ms: int
    waits: bool
    keeps_slot: bool


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

    def result(self, id: str) -> Any: ...


def _aside(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the coroutine method that calls a method in a thread."""

    @wraps(method)
    async def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await sync_to_async(method)(self, *args, **kwargs)

    return twin


class DurableControl(ABC):
    """The part of a ``JobControl`` that outlives one delivery of the job."""

    job: LeasedJob
    #: Set when the job suspends; for the worker.
    suspension: Suspension | None = None
    #: Whether it keeps the slot of its limit while suspended; for handlers.
    keeps_slot = False
    #: When its deadline is over (of ``clock.elapsing``); for handlers to set: a suspended job continues then to end.
    over_at = math.inf
    #: Whether its handler undoes steps; for handlers.
    undoes_steps = False
    #: The step after whose record the run crashes; for tests.
    crash_after: str | None = None

    @property
    @abstractmethod
    def _done(self) -> JobSteps:
        """The steps of this run."""

    def step(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        atomic: bool = False,
        retries: int = 0,
        backoff: float = 0.0,
        undo: Undo | None = None,
        **kwargs: Any,
    ) -> T:
        """Run a part of the job once: later deliveries get its recorded value instead.

        A plain step runs at least once: it repeats if the worker dies between its end and its record. An atomic step is
        exactly once for rows of the job's database: one transaction commits them with the record, and only while the
        worker holds the lease.

        Args:
            name: 1 to 200 characters, without ``#``; the same name again in one run is another step (``name#2``).
            function: the function of the step. It returns JSON, at most as large as a result.
            *args: its arguments.
            atomic: run it inside ``transaction.atomic()`` of the job's database. Other databases may only be read.
            retries: how often to retry at once when it raises, at most 100.
            backoff: seconds between two tries.
            undo: a function at the top of a module. If the task fails for good or is cancelled, ``undo(value)`` undoes
                the step; the last step is undone first. That of an atomic step is atomic, too.
            **kwargs: its keyword arguments.

        Returns:
            The value of the function after JSON: a tuple becomes a list.

        Raises:
            LeaseLost: the lease is over; the step is not recorded, and an atomic one is rolled back.
            InvalidOption: an argument is not allowed, or an atomic step writes to another database.
            PayloadTooLarge: its value is too large. An error of the function is raised, too; the step is not done then.
        """
        found: T = self._done.run(
            name, partial(function, *args, **kwargs), atomic=atomic, retries=retries, backoff=backoff, undo=undo
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
        undo: Undo | None = None,
        **kwargs: Any,
    ) -> Any:
        """See ``step``; ``function`` may be a coroutine function, unless the step is atomic."""
        return await self._done.arun(
            name, partial(function, *args, **kwargs), atomic=atomic, retries=retries, backoff=backoff, undo=undo
        )

    def atomic_step(self, name: str, undo: Undo | None = None) -> AtomicStep:
        """Run a block as an atomic step: ``with current().atomic_step("reserve") as step``.

        The block runs in ``transaction.atomic()`` of the job's database; that transaction records ``step.value``, which
        the block sets: see ``step``. If ``step.done``, an earlier delivery has done the step and ``step.value`` is its
        value; the block runs all the same, and may not write. ``undo`` undoes it, as that of ``step``.

        Raises:
            LeaseLost: at the end of the block: the lease is over, and the block is rolled back.
            InvalidOption: an argument is not allowed, the block writes to another database or again, or it is in a
                coroutine.
            PayloadTooLarge: the value is too large.
        """
        return AtomicStep(name, partial(self._done.block, name, undo))

    def step_key(self, name: str) -> str:
        """Return a text that is unique for a step of a job and equal in each delivery: an external idempotency key."""
        return f"{self.job.key or self.job.seq}:{name}"

    def sleep(self, /, name: str, **units: float) -> None:
        """Suspend the job for a time: then the task is called again, and its steps return their recorded values.

        A sleep is neither a failure nor a counted delivery. After a crash it sleeps only the remaining time.

        Args:
            name: 1 to 200 characters, as for a step: the same name again in one run is another sleep.
            **units: of ``timedelta``: ``hours=24``; at most 100 years.

        Raises:
            InvalidOption: an argument is not allowed, or a transaction is open.
            LeaseLost: the lease is over.
        """
        try:
            delay = timedelta(**units)
        except (TypeError, OverflowError, ValueError) as error:
            raise InvalidOption(f"units must be those of timedelta, such as hours=24: {error}.") from error
        self._done.wait(name, delay=delay)

    asleep = _aside(sleep)

    def sleep_until(self, name: str, when: datetime) -> None:
        """Suspend the job until a time with a time zone: see ``sleep``."""
        self._done.wait(name, until=when)

    asleep_until = _aside(sleep_until)

    def wait_for(self, event: str, timeout: timedelta | float | None = None) -> Any:
        """Suspend the job until an event is emitted: see ``sleep``, and ``django_leasequeue.tasks.emit``.

        Args:
            event: its name, 1 to 512 bytes; an earlier event counts as long as it is kept.
            timeout: seconds; ``None`` for 100 years.

        Returns:
            Its payload.

        Raises:
            EventTimeout: it did not come in time; later deliveries raise it as well.
            InvalidOption, LeaseLost: as ``sleep``.
        """
        check_event_name(event)
        delay = MAX_SPAN_MS / 1_000 if timeout is None else timeout
        found = self._done.wait(event_step(event), event=event, delay=delay)
        if "payload" not in found:
            raise EventTimeout(event)
        return found["payload"]

    await_for = _aside(wait_for)

    def suspend(self, delay_ms: int, *, waits: bool) -> NoReturn:
        if self.over_at < math.inf:
            delay_ms = min(delay_ms, max(0, int((self.over_at - clock.elapsing()) * 1_000)) + 1)
        self.suspension = Suspension(delay_ms, waits, self.keeps_slot)
        raise Suspended

    def wait_for_result(self, result: Result[T], timeout: timedelta | float | None = None) -> T:
        """Suspend the job until another task or a workflow has ended: see ``sleep``.

        Args:
            result: the result of the other task, or of the workflow (``get_workflow_result``).
            timeout: seconds; ``None`` for 100 years.

        Returns:
            Its value, as from ``wait`` of its result.

        Raises:
            JobFailed: it failed. JobCancelled: it is gone without a result. EventTimeout: it did not end in time. Later
                deliveries raise the same error, whatever happened since.
            InvalidOption, LeaseLost: as ``sleep``.
        """
        value: T = self._done.wait_for_result(result, timeout)
        return value

    await_for_result = _aside(wait_for_result)

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
        task = getattr(call, "task", None)
        if task is None:
            raise InvalidOption(
                f"start() takes a signature, such as task.s(1); it is {call!r:.200}. Enqueue workflows in atomic steps."
            )
        id = self.step(name or f"start {task.name}", lambda: task.enqueue(*call.args, **call.kwargs).id, atomic=True)
        return call.result(id)

    astart = _aside(start)

    def replace(self, call: Any) -> NoReturn:
        """End this run and let another call replace the task: its result is the task's result.

        Callers and later jobs of a workflow that wait for the task wait for that call. Its failure is the task's,
        without a retry here; a cancel of the task cancels it. It is enqueued once over all deliveries of the task.

        Args:
            call: a signature, ``other.s(1)``, a chain, a group or a chord; up to 100 may replace one another.
        """
        raise Replaced(call)

    def passed(self, step: str) -> None:
        """Crash after a step if a test asks for it. For the steps."""
        if self.crash_after == step:
            raise Crashed

    def find_step(self, name: str) -> Any:
        """Return the value that an earlier delivery recorded for a step; ``None`` without one. For handlers."""
        return self._done.kept(name)

    def raise_if_suspended(self) -> None:
        """Raise ``Suspended`` again if the task has caught it. For the steps."""
        if self.suspension is not None:
            raise Suspended

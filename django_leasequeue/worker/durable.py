"""Durable control of a running job: steps that run once, sleeps, waits for events, replacement by another call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import Any, Concatenate, NamedTuple, NoReturn, ParamSpec, Protocol, TypeVar

from asgiref.sync import sync_to_async

from ..engine import LeasedJob
from ..engine.jobs.steps import check_event_name, event_step
from ..engine.limits import MAX_SPAN_MS
from ..exceptions import EventTimeout, InvalidOption
from .steps import AtomicStep, JobSteps

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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


def _aside(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make the coroutine method that calls a method in a thread."""

    @wraps(method)
    async def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await sync_to_async(method)(self, *args, **kwargs)

    return twin


class DurableControl(ABC):
    """The part of a ``JobControl`` that is kept over all deliveries of the job."""

    job: LeasedJob
    #: Set when the job gives its place up; for the worker.
    suspension: Suspension | None = None
    #: Whether it keeps the slot of its limit when it is suspended; for handlers.
    keeps_slot = False
    #: The step behind whose record the run breaks off; for tests.
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
        return f"{self.job.key or self.job.seq}:{name}"

    def sleep(self, /, name: str, **units: float) -> None:
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
        try:
            delay = timedelta(**units)
        except (TypeError, OverflowError, ValueError) as error:
            raise InvalidOption(f"a sleep takes the units of timedelta, such as hours=24: {error}.") from error
        self._done.wait(name, delay=delay)

    asleep = _aside(sleep)

    def sleep_until(self, name: str, when: datetime) -> None:
        """Go on at a time, which has a time zone: see ``sleep``."""
        self._done.wait(name, until=when)

    asleep_until = _aside(sleep_until)

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
        check_event_name(event)
        delay = MAX_SPAN_MS / 1_000 if timeout is None else timeout
        found = self._done.wait(event_step(event), event=event, delay=delay)
        if "payload" not in found:
            raise EventTimeout(event)
        return found["payload"]

    await_for = _aside(wait_for)

    def suspend(self, delay_ms: int, *, waits: bool) -> NoReturn:
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
        task = call.task
        id = self.step(name or f"start {task.name}", lambda: task.enqueue(*call.args, **call.kwargs).id, atomic=True)
        return task.get_result(id)

    astart = _aside(start)

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

"""Context of a running task: ``current()``, ``step``, ``emit``, and the call that replaces the task."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, overload

from .. import conf, engine
from ..engine import LeasedJob
from ..engine.jobs import steps
from ..engine.queues import routing
from ..enums import JobFlag
from ..exceptions import InvalidOption, JobCancelled, JobFailed
from ..twins import Body, either
from .api import DEFAULT_TASK_BACKEND_ALIAS, P, T, TaskContext, TaskResultDoesNotExist, task_backends
from .exceptions import FailForGood
from .results import number_of
from .signature import Signature, Step, first_argument, read_inputs
from .undo import undo
from .workflow_result import WorkflowResult, get_workflow_result

if TYPE_CHECKING:
    from ..worker.control import JobControl
    from .lookup import TaskEntry

#: Calls that may replace one another.
MAX_REPLACEMENTS = 100
#: The step in which a job keeps what has replaced it; ``step_replacements.sql`` looks for it.
STEP = "$replaced"
#: As a plain number: every task is asked, and the operators of an enum cost more than the rest of the look.
_FAILED = int(JobFlag.FAILED)

#: The control of the job that runs here: in this thread, or in this asyncio task.
running: ContextVar[JobControl | None] = ContextVar("leasequeue_running", default=None)

#: Metadata of calls that take a running task's place: ``replaces``, how many calls have replaced one another, and
#: ``awaited``, whether the end of the job itself is that task's.
replacing: ContextVar[dict[str, Any] | None] = ContextVar("leasequeue_replacing", default=None)


def current() -> JobControl | None:
    """Return the ``JobControl`` of the job that runs in this thread or asyncio task; ``None`` outside of a worker.

    It has the job and its lease, knows whether the lease is lost, and takes progress reports. Functions that a task
    calls may use it; in threads that the task starts by itself it is ``None``.
    """
    return running.get()


@dataclass(frozen=True, kw_only=True)
class LeaseQueueContext(TaskContext):
    """Django's ``TaskContext`` with the control of the job: the first argument of tasks with ``takes_context=True``."""

    control: JobControl
    """The job, whether its lease is lost, and progress reports; see ``current``."""


@overload
def step(function: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def step(
    *,
    name: str | None = ...,
    atomic: bool = ...,
    retries: int = ...,
    backoff: float = ...,
    undo: Callable[[Any], object] | None = ...,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    atomic: bool = False,
    retries: int = 0,
    backoff: float = 0.0,
    undo: Callable[[Any], object] | None = None,
) -> Any:
    """Make a function a step of the task that calls it; outside of a task it is a plain function.

    Args:
        function: what it does, a coroutine function too; left out when the decorator has arguments.
        name: of the step; ``None``: that of the function.
        atomic: run it inside ``transaction.atomic()`` of the job's database.
        retries: how often it is tried again in place when it raises.
        backoff: seconds between two tries.
        undo: a function that gets its value and undoes it, if the task fails for good or is cancelled.
    """

    def make(inner: Callable[..., Any]) -> Callable[..., Any]:
        called = name or inner.__name__
        options: dict[str, Any] = {"atomic": atomic, "retries": retries, "backoff": backoff, "undo": undo}

        if iscoroutinefunction(inner):

            @wraps(inner)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                control = running.get()
                if control is None:
                    return await inner(*args, **kwargs)
                return await control.astep(called, lambda: inner(*args, **kwargs), **options)

            return arun

        @wraps(inner)
        def run(*args: Any, **kwargs: Any) -> Any:
            control = running.get()
            if control is None:
                return inner(*args, **kwargs)
            return control.step(called, lambda: inner(*args, **kwargs), **options)

        return run

    return make if function is None else make(function)


def emit(
    name: str,
    payload: Any = None,
    *,
    retention: timedelta | float = steps.RETENTION,
    project: str = "",
    using: str | None = None,
) -> bool:
    """Say that an event has happened: tasks that wait for it go on (``current().wait_for``), later ones find it.

    It is part of the caller's transaction: it has happened when that commits.

    Args:
        name: 1 to 512 bytes, not beginning with ``$``. The first event of a name stays as long as it is kept.
        payload: JSON, as large as a job's payload may be.
        retention: seconds or a timedelta for which it is kept, at most 100 years.
        project: the tenant whose tasks wait for it.
        using: alias of the jobs' database; by default that of the running task, or ``LEASEQUEUE["DATABASE"]``.

    Returns:
        Whether it is the first of its name: else nothing has changed.

    Raises:
        InvalidOption, PayloadTooLarge: an argument is not allowed.
    """
    return engine.run(steps.emit(name, payload, project=project, retention=retention), _database(using))


async def aemit(
    name: str,
    payload: Any = None,
    *,
    retention: timedelta | float = steps.RETENTION,
    project: str = "",
    using: str | None = None,
) -> bool:
    """See ``emit``. It runs on an async connection of its own, not in a transaction of the caller."""
    return await engine.arun(steps.emit(name, payload, project=project, retention=retention), _database(using))


def _database(using: str | None) -> str:
    control = running.get()
    return using or (control.using if control is not None else None) or conf.settings.DATABASE


def queue_database(backend: Any, queue: str) -> str:
    """Return the alias of the database of the running job of a queue."""
    control = running.get()
    if control is not None and control.using:
        return control.using
    return str(backend.config.database or routing.alias_of(backend.config.project, queue))


def with_inputs(entry: TaskEntry, job: LeasedJob, args: Any, marked: Any) -> Body[list[Any]]:
    """Return the arguments with the inputs from parent jobs."""
    database = queue_database(task_backends[entry.alias], job.queue)
    parents = yield either(engine.run, engine.arun, read_inputs(job.seq), database)
    context = int(entry.task.takes_context)
    return [*args[:context], first_argument(parents, marked), *args[context:]]


# A running task that replaces itself: another call is enqueued in its place, whose end is its own


class ReplacementFailed(FailForGood):
    """The call that replaced a task has failed, or was cancelled."""

    def __init__(self, error: JobFailed | JobCancelled) -> None:
        self.error_type = getattr(error, "error_type", None) or f"{type(error).__module__}.{type(error).__qualname__}"
        super().__init__(getattr(error, "error", None) or str(error))


def may_be_replaced(job: LeasedJob) -> bool:
    """Return whether an earlier delivery of a job may have put another in its place."""
    return job.deliveries > 1 or job.flags & _FAILED > 0


def resumed(control: JobControl, project: str) -> Callable[[], Any] | None:
    """Return what a delivery does in place of calling the task: undo its steps, or wait for what has replaced it."""
    if not may_be_replaced(control.job):
        return None
    replacement = control.find_step(STEP)
    if (steps := control.to_undo()) is not None and steps.undoing:
        return partial(undo, control, steps, project)
    return None if replacement is None else partial(replaced, control)


def replaced(control: JobControl, call: Any = None) -> Any:
    """Return the value of the job's replacement: start it once, and wait without a thread."""
    # What replaces it may be under the same limit.
    control.keeps_slot = False
    started = control.step(STEP, partial(_start_instead, control, call), atomic=True)
    alias = started.get("backend", DEFAULT_TASK_BACKEND_ALIAS)
    result: Any
    try:
        if "workflow" in started:
            result = get_workflow_result(started["workflow"], alias)
        else:
            result = task_backends[alias].get_result(started["task"])
    except TaskResultDoesNotExist:
        result = _Gone(started.get("task") or started["workflow"])
    try:
        return control.wait_for_result(result)
    except (JobFailed, JobCancelled) as error:
        raise ReplacementFailed(error) from error


class _Gone(NamedTuple):
    """The result of a call that has gone: an earlier delivery may have kept its value."""

    id: str

    def ended_event(self) -> str:
        return self.id

    def outcome(self) -> NoReturn:
        raise JobCancelled(self.id)


def _start_instead(control: JobControl, call: Any) -> dict[str, Any]:
    if not isinstance(call, Step):
        raise InvalidOption(
            f"replace() takes a signature, such as task.s(1), a chain, a group or a chord; it is {call!r:.200}."
        )
    depth = (control.job.meta or {}).get("replaces", 0) + 1
    if depth > MAX_REPLACEMENTS:
        raise InvalidOption(f"{MAX_REPLACEMENTS} calls have replaced one another; that is the most.")
    token = replacing.set({"replaces": depth, **({"awaited": True} if isinstance(call, Signature) else {})})
    try:
        result: Any = call.enqueue()
    finally:
        replacing.reset(token)
    backend: Any = task_backends[result.backend]
    kept = {"backend": result.backend}
    if isinstance(result, WorkflowResult):
        return {**kept, "workflow": result.id, "project": backend.config.project}
    if not hasattr(backend, "config"):
        raise InvalidOption(f"the backend {result.backend!r} of {call!r:.200} keeps no jobs: it cannot replace one.")
    # Another job that has its key stays when this one is cancelled.
    own = {"seq": number_of(result.id), "queue": result.task.queue_name, "project": backend.config.project}
    return {**kept, "task": result.id, **(own if result.created else {})}

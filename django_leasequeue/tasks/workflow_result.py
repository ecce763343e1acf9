"""Results of workflows: progress, return values, and waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple
from uuid import UUID

from .. import engine
from ..engine import NodeRow, WorkflowStatus, clock, codec, payloads
from ..engine.flow.figures import MAX_PAGE
from ..engine.jobs.steps import workflow_event
from ..engine.limits import check_timeout
from ..engine.operation import Statements, operation
from ..engine.outage import away
from ..enums import MemberState, WorkflowShape, WorkflowState
from ..exceptions import InvalidOption, JobCancelled, JobFailed, WaitTimeout
from ..notify.replies import work_in_place
from ..twins import Body, Twins, arun, either, run, sleep, sync, twin
from .api import DEFAULT_TASK_BACKEND_ALIAS, T, TaskResultDoesNotExist, TaskResultStatus, task_backends

#: Seconds between two looks at a workflow that is waited for, at first and at most.
_FIRST_LOOK, _LAST_LOOK = 0.05, 1.0

_RESULT = payloads.Columns("result_json", None)


class Member(NamedTuple):
    """A job of a workflow.

    ``id`` is that of its task's result, ``task`` its path. ``state``: ``waiting``, ``ready``, ``delayed`` (until its
    next attempt), ``running``, ``completed``, ``failed`` or ``cancelled``. ``name``: as it was given, else that of its
    function; the second of a name ends in ``#2``.
    """

    id: str | None
    task: str | None
    queue: str | None
    state: str
    error_type: str | None
    error: str | None
    name: str


class StepResult(NamedTuple):
    """A step of a workflow, found by its name. ``value``: what it returned, ``None`` unless it is ``SUCCESSFUL``."""

    name: str
    id: str | None
    status: TaskResultStatus
    value: Any
    error_type: str | None
    error: str | None


#: Statuses of jobs as those of tasks; what has no entry is ready.
_STATUSES = {
    "running": TaskResultStatus.RUNNING,
    "completed": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}


class WorkflowResult(Twins, Generic[T]):
    """A workflow that was enqueued.

    Args:
        id: of the workflow.
        backend: alias of its tasks' backend in ``TASKS``.
        database: alias of the database.
    """

    def __init__(self, id: str, backend: str, database: str) -> None:
        self.id = id
        self.backend = backend
        self._database = database
        #: Whether it is enqueued: not before the commit of data in another database.
        self.enqueued = True

    def __repr__(self) -> str:
        return f"WorkflowResult(id={self.id!r})"

    @property
    def status(self) -> WorkflowStatus:
        """How many of its jobs have ended, and its state (``label``): one cheap read, however many there are.

        Raises:
            TaskResultDoesNotExist: it is not there: not enqueued yet, rolled back, or forgotten a day after its end.
        """
        return run(self._status())

    async def astatus(self) -> WorkflowStatus:
        """Async twin of ``status``."""
        return await arun(self._status())

    @sync
    def members(self) -> Body[list[Member]]:
        """Return its jobs in the order in which they were added, and how they are.

        Raises:
            TaskResultDoesNotExist: see ``status``.
        """
        status = yield from self._status()
        rows: list[NodeRow] = yield self._ask(_nodes(status.id, results=False))
        return [
            Member(row.key, row.task, row.queue, row.state, row.error_type, row.error, name)
            for row, name in zip(rows, _names(rows), strict=True)
        ]

    amembers = twin(members)

    @sync
    def step(self, name: str) -> Body[StepResult]:
        """Return one of its steps, by its name; ``result["resize"]`` is the same.

        Args:
            name: as ``Workflow.add`` was given it, else that of the function; the second of a name ends in ``#2``.

        Raises:
            KeyError: it has no step of that name.
            TaskResultDoesNotExist: see ``status``.
        """
        status = yield from self._status()
        rows: list[NodeRow] = yield self._ask(_nodes(status.id, results=False))
        names = _names(rows)
        if name not in names:
            raise KeyError(name)
        seq = rows[names.index(name)].seq
        (row,) = yield self._ask(engine.workflow_nodes(status.id, after=seq - 1, size=1))
        value = None
        if row.member == MemberState.COMPLETED:
            ((_, value),) = yield from self._values([(name, row)])
        found = _STATUSES.get(row.state, TaskResultStatus.READY)
        return StepResult(name, row.key, found, value, row.error_type, row.error)

    astep = twin(step)

    def __getitem__(self, name: str) -> StepResult:
        return self.step(name)

    @sync
    def results(self) -> Body[list[Any]]:
        """Return what the jobs at its end returned, those that no other comes after, in order.

        Of a group these are all members, of a chain the last step, of a chord the callback.

        Raises:
            InvalidOption: it goes on.
            JobFailed: one of them failed, or was cancelled because another failed: that one's error.
            JobCancelled: it was cancelled; or a return value has expired.
            TaskResultDoesNotExist: see ``status``.
        """
        status = yield from self._status()
        if not _has_ended(status):
            raise InvalidOption(f"The workflow {self.id} goes on: {status.open} jobs have not ended. Wait for it.")
        return [value for _, value in (yield from self._ended(status))]

    aresults = twin(results)

    @sync
    def wait(self, timeout: float = 30.0) -> Body[T]:
        """Wait until all its jobs have ended and return its value.

        That of a chain is what its last step returned, of a chord what its callback did, of a group the list of what
        its members did, and of a ``Workflow`` a mapping: what the jobs at its end returned, by name. Where running
        tasks have added steps, so that several jobs are at the end of a chain, it is the list of theirs.

        Not inside ``transaction.atomic()`` of the jobs' database, where no worker sees them; tests with
        ``django_leasequeue.testing`` run them there themselves.

        Args:
            timeout: seconds, at most a day.

        Raises:
            WaitTimeout: they have not ended in time; they go on.
            JobFailed, JobCancelled: see ``results``; ``JobCancelled`` also if it is not there any more.
            InvalidOption: ``timeout`` is not allowed, or it waits for a transaction of the caller.
        """
        deadline = clock.monotonic() + check_timeout(timeout)
        if not self.enqueued:
            raise InvalidOption(
                "the workflow is not enqueued before the transaction of the caller's data commits. Wait for it after"
                " that."
            )
        work = yield from work_in_place(self._database)
        if work is not None:
            yield work
        pause = _FIRST_LOOK
        while True:
            found = yield from self._look()
            if found is not None:
                return found[0]
            left = deadline - clock.monotonic()
            if left <= 0:
                raise WaitTimeout(self.id, timeout)
            yield sleep(min(pause, left))
            pause = min(pause * 1.5, _LAST_LOOK)

    await_all = twin(wait, "await_all")

    @sync
    def cancel(self) -> Body[int]:
        """Cancel it: jobs that wait are taken out, those that run are told, and count as what they become.

        Jobs with steps to undo go when they are undone. In the caller's transaction if there is one.

        Returns:
            How many waiting jobs it has cancelled; 0 if it has ended.
        """
        gone: int | None = yield self._ask(engine.cancel_workflow(UUID(self.id), project=_project_of(self.backend)))
        return gone or 0

    acancel = twin(cancel)

    def ended_event(self) -> str:
        """Return the name of the event that the workflow's end is: for a task that waits for it."""
        return workflow_event(self.id)

    def outcome(self) -> tuple[T] | None:
        """Return the value of ``wait`` in a tuple; ``None`` if it goes on; errors are as of ``wait``."""
        return run(self._look())

    def _ask(self, operation: engine.Operation[Any]) -> Any:
        return either(engine.run, engine.arun, operation, self._database)

    def _status(self) -> Body[WorkflowStatus]:
        read = engine.get_workflow(UUID(self.id), project=_project_of(self.backend))
        found: WorkflowStatus | None = yield self._ask(read)
        if found is None:
            raise _missing(self.id)
        return found

    def _ended(self, status: WorkflowStatus) -> Body[list[tuple[str, Any]]]:
        """Return the names and return values of its last jobs."""
        rows: list[NodeRow] = yield self._ask(_nodes(status.id))
        parents = {seq for row in rows if not row.for_failure for seq in row.parents or ()}
        named = zip(_names(rows), rows, strict=True)
        ends = [(name, row) for name, row in named if row.seq not in parents and not row.for_failure]
        broken = [row for _, row in ends if row.member != MemberState.COMPLETED]
        if broken:
            failed = next((row for row in [*broken, *rows] if row.member == MemberState.FAILED), None)
            if failed is None:
                raise JobCancelled(self.id, f"Workflow {self.id} was cancelled.")
            raise JobFailed(failed.key or failed.seq, failed.error_type, failed.error)
        return (yield from self._values(ends))

    def _values(self, named: list[tuple[str, NodeRow]]) -> Body[list[tuple[str, Any]]]:
        for _, row in named:
            if not row.ended:
                raise JobCancelled(row.key or row.seq, f"The result of job {row.key or row.seq} has expired.")
        loaded: list[NodeRow] = yield self._ask(_load([row for _, row in named], _RESULT))
        values = [None if row.result_json is None else codec.loads(row.result_json) for row in loaded]
        return [(name, value) for (name, _), value in zip(named, values, strict=True)]

    def _look(self) -> Body[tuple[T] | None]:
        """Return the value, ``None`` if it goes on or the database is away."""
        try:
            status = yield from self._status()
            if not _has_ended(status):
                return None
            named = yield from self._ended(status)
            if status.shape == WorkflowShape.MAPPING:
                return (dict(named),)  # type: ignore[return-value]  # T is what the shape says
            values = [value for _, value in named]
            return (values[0] if status.shape == WorkflowShape.VALUE and len(values) == 1 else values,)  # type: ignore[return-value]
        except TaskResultDoesNotExist as error:
            raise JobCancelled(self.id, f"Workflow {self.id} is gone: it was removed, or has expired.") from error
        except Exception as error:
            if not away(error):
                raise
            return None


def get_workflow_result(workflow_id: str, backend: str = DEFAULT_TASK_BACKEND_ALIAS) -> WorkflowResult[Any]:
    """Return the result of a workflow by its id.

    Args:
        workflow_id: ``id`` of what enqueueing it returned.
        backend: alias of its tasks' backend.

    Raises:
        TaskResultDoesNotExist: there is none: it never was, or ended more than a day ago.
    """
    return run(_find(workflow_id, backend))


async def aget_workflow_result(workflow_id: str, backend: str = DEFAULT_TASK_BACKEND_ALIAS) -> WorkflowResult[Any]:
    """Async twin of ``get_workflow_result``."""
    return await arun(_find(workflow_id, backend))


def _find(workflow_id: Any, alias: str) -> Body[WorkflowResult[Any]]:
    backend: Any = task_backends[alias]
    project = _project_of(alias)
    try:
        uid = UUID(str(workflow_id))
    except ValueError as error:
        raise _missing(str(workflow_id)[:80]) from error
    for database in backend.databases():
        if (yield either(engine.run, engine.arun, engine.get_workflow(uid, project=project), database)) is not None:
            return WorkflowResult(str(uid), alias, database)
    raise _missing(str(uid))


def _project_of(alias: str) -> str:
    backend: Any = task_backends[alias]
    if not hasattr(backend, "config"):
        raise InvalidOption(f"The backend {alias!r} is a {type(backend).__name__}, which has no workflows.")
    return str(backend.config.project)


def _missing(workflow_id: str) -> TaskResultDoesNotExist:
    return TaskResultDoesNotExist(
        f"There is no workflow {workflow_id!r}: it was not enqueued in this project, or ended more than a day ago."
    )


def _names(rows: Sequence[NodeRow]) -> list[str]:
    """Return the names of a workflow's steps: given names first, then those of functions."""
    names = [""] * len(rows)
    counts: Counter[str] = Counter()
    for place in sorted(range(len(rows)), key=lambda place: not rows[place].label):
        base = rows[place].label or (rows[place].task or "job").rpartition(".")[2]
        counts[base] += 1
        names[place] = base if counts[base] == 1 else f"{base}#{counts[base]}"
    return names


def _has_ended(status: WorkflowStatus) -> bool:
    return status.ended_at is not None or status.state == WorkflowState.CANCELLED


@operation
def _nodes(workflow: int, *, results: bool = True) -> Statements[list[NodeRow]]:
    rows: list[NodeRow] = []
    while True:
        after = rows[-1].seq if rows else 0
        page = yield from engine.workflow_nodes(workflow, after=after, size=MAX_PAGE, results=results)
        rows += page
        if len(page) < MAX_PAGE:
            return sorted(rows, key=lambda row: row.place)


_load = operation(payloads.steps)

"""``TaskResult`` of jobs: built from rows of the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from django.utils import timezone

from ..engine import HELD, codec, payloads
from ..engine.operation import Steps, operation
from ..engine.tags import META
from ..enums import JobState, ResultState
from . import backoff as backoffs
from .api import Task, TaskError, TaskResult, TaskResultStatus
from .exceptions import TaskNotFound
from .registry import copy_with, find_task
from .results import LeaseQueueTaskResult, local, show_decoded
from .task import OWN_FIELDS, LeaseQueueTask

#: Path of the exception class that an expired lease has among a result's errors.
LEASE_LOST = "django_leasequeue.exceptions.LeaseLost"
_LEASE_EXPIRED = "LEASE_EXPIRED"

#: What a JSON column holds.
K = TypeVar("K", dict[str, Any], list[Any])

_STATUSES = {
    int(JobState.READY): TaskResultStatus.READY,
    int(JobState.DELAYED): TaskResultStatus.READY,
    int(JobState.LEASED): TaskResultStatus.RUNNING,
    int(JobState.DEAD): TaskResultStatus.FAILED,
    int(JobState.RECORD): TaskResultStatus.READY,
    10 + ResultState.COMPLETED: TaskResultStatus.SUCCESSFUL,
    10 + ResultState.FAILED: TaskResultStatus.FAILED,
    10 + ResultState.CANCELLED: TaskResultStatus.FAILED,
}


#: The columns of a row that may stand in a storage.
_DATA, _VALUE = payloads.Columns("data", None), payloads.Columns("value", None)


class ResultRow(NamedTuple):
    """A row of ``task_result.sql``. JSON columns are text, times are aware."""

    state: int
    """The job's state, or 10 and the state of its result."""

    queue: str
    """The queue that it was enqueued to."""

    priority: int
    name: str | None
    data: str | None
    errors: str | None
    value: str | None
    node: str | None
    """The node that holds it, or finished it."""

    deliveries: int
    available_at: datetime | None
    """The time at which it becomes ready, while it is delayed."""

    created_at: datetime
    first_claimed_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None
    is_dead: bool
    meta: str | None
    max_deliveries: int | None
    """The job's own limit; ``None``: its queue's."""


def errors_of(records: Sequence[Mapping[str, Any]]) -> list[TaskError]:
    """Return the failed attempts of a job as Django's errors."""
    return [error_of(record.get("type"), record.get("message"), record.get("traceback")) for record in records]


def error_of(kind: Any, message: Any, traceback: Any) -> TaskError:
    """Return one failed attempt as Django's error; without a traceback the message takes its place."""
    path = LEASE_LOST if kind == _LEASE_EXPIRED else str(kind or "")
    return TaskError(exception_class_path=path, traceback=str(traceback or message or ""))


def workers_of(records: Sequence[Mapping[str, Any]], node: str | None, attempts: int) -> list[str]:
    """Return the worker of each attempt, oldest first; ``""`` where it is not remembered any more."""
    known = [str(record.get("node") or "") for record in records]
    if node is not None:
        known.append(node)
    return [""] * (attempts - len(known)) + known


def make_result(
    task: Task[..., Any],
    key: str,
    status: TaskResultStatus,
    *,
    data: Mapping[str, Any] | None,
    backend: str,
    errors: list[TaskError],
    worker_ids: list[str],
    value: Any = None,
    finished_at: datetime | None = None,
    **times: datetime | None,
) -> TaskResult[Any]:
    """Return a ``TaskResult``; ``data`` is the job's payload, ``value`` what the task returned."""
    result: TaskResult[Any] = LeaseQueueTaskResult(
        task=task,
        id=key,
        status=status,
        finished_at=local(finished_at),
        **{name: local(at) for name, at in times.items()},
        args=data.get("args", []) if data else [],
        kwargs=data.get("kwargs", {}) if data else {},
        backend=backend,
        errors=errors,
        worker_ids=worker_ids,
    )
    show_decoded(result)
    if value is not None:
        object.__setattr__(result, "_return_value", value)
    return result


def result_of_row(key: str, row: ResultRow, alias: str) -> TaskResult[Any]:
    """Return the result of a row of the database."""
    records = [record for record in _read(row.errors, list) if isinstance(record, dict)]
    status = TaskResultStatus.FAILED if row.is_dead else _STATUSES[row.state]
    try:
        declared = find_task(row.name)
    except TaskNotFound as error:
        raise TaskNotFound(f"The result {key} is there, but its task is not: {error}") from error
    task = task_as_enqueued(
        declared,
        _read(row.meta, dict),
        priority=row.priority,
        queue_name=row.queue,
        backend=alias,
        # A delay after an attempt is a backoff, and one without end a limit's or a workflow's: no caller asked for it.
        run_after=None if row.deliveries or row.available_at is None or row.available_at >= HELD else row.available_at,
        max_attempts=row.max_deliveries,
    )
    running = row.state == JobState.LEASED or status is TaskResultStatus.SUCCESSFUL
    return make_result(
        task,
        key,
        status,
        data=_read(row.data, dict),
        backend=alias,
        errors=errors_of(records),
        worker_ids=workers_of(records, row.node if running else None, row.deliveries),
        enqueued_at=row.created_at,
        started_at=row.first_claimed_at,
        last_attempted_at=row.claimed_at,
        finished_at=row.finished_at,
        value=None if row.value is None else codec.loads(row.value),
    )


def task_as_enqueued(
    declared: Task[..., Any],
    meta: Mapping[str, Any],
    *,
    priority: int,
    queue_name: str,
    backend: str,
    run_after: datetime | None = None,
    max_attempts: int | None = None,
) -> Task[..., Any]:
    """Return a task as it was when it was enqueued: as declared, with what ``using()`` had changed."""
    changes: dict[str, Any] = {
        "priority": priority,
        "queue_name": queue_name,
        "backend": backend,
        "run_after": local(_time(meta.get("run_after")) or run_after),
    }
    if isinstance(declared, LeaseQueueTask):
        own = _own_changes(declared, meta, max_attempts)
        changed = tuple(name for name in (*OWN_FIELDS, "queue_name") if name in own or name in declared.changed)
        changes |= {**own, "changed": changed}
    return copy_with(declared, changes)


def _own_changes(
    declared: LeaseQueueTask[..., Any], meta: Mapping[str, Any], max_attempts: int | None
) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if max_attempts is not None and max_attempts != declared.max_attempts:
        changes["max_attempts"] = max_attempts
    timeout = meta.get("timeout")
    if isinstance(timeout, (int, float)) and timeout > 0:
        changes["timeout"] = float(timeout)
    if "backoff" in meta:
        with suppress(TypeError, ValueError):
            changes["backoff"] = backoffs.load(meta["backoff"])
    if isinstance(meta.get("ignore_result"), bool):
        changes["ignore_result"] = meta["ignore_result"]
    if found := meta.get(META):
        changes["tags"] = found
    return changes


def _time(text: Any) -> datetime | None:
    """Return the aware time that an ISO 8601 text names; ``None`` if it names none."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return None if timezone.is_naive(found) else found


def _read(text: str | None, kind: type[K]) -> K:
    value = None if text is None else codec.loads(text)
    return value if isinstance(value, kind) else kind()


@operation
def find_row(key: str, project: str) -> Steps[ResultRow | None]:
    """Read what is known of a job by its key; ``None`` if nothing is."""
    rows = yield "task_result", {"key": key, "project": project}
    if not rows:
        return None
    found = [ResultRow(*rows[0])]
    for columns in (_DATA, _VALUE):
        found = yield from payloads.steps(found, columns)
    return found[0]

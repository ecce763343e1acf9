"""From rows to ``TaskResult``: what Django's API says of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings as django_settings
from django.utils import timezone

from ..engine import codec
from ..enums import JobState, ResultState
from .api import Task, TaskError, TaskResult, TaskResultStatus
from .exceptions import TaskNotFound
from .registry import copy_with, find_task

#: The class that stands for an expired lease among a result's errors.
LEASE_LOST = "django_leasequeue.exceptions.LeaseLost"
_LEASE_EXPIRED = "LEASE_EXPIRED"

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


def local(value: datetime | None) -> datetime | None:
    """Return a time as Django gives them: in UTC, or naive in the host's zone without ``USE_TZ``."""
    if value is None:
        return None
    return value.astimezone(UTC) if django_settings.USE_TZ else timezone.make_naive(value)


def errors_of(records: Sequence[Mapping[str, Any]]) -> list[TaskError]:
    """Return the failed attempts of a job as Django's errors."""
    return [error_of(record.get("type"), record.get("message"), record.get("traceback")) for record in records]


def error_of(kind: Any, message: Any, traceback: Any) -> TaskError:
    """Return one failed attempt as Django's error; without a traceback the message takes its place."""
    path = LEASE_LOST if kind == _LEASE_EXPIRED else str(kind or "")
    return TaskError(exception_class_path=path, traceback=str(traceback or message or ""))


def workers_of(records: Sequence[Mapping[str, Any]], node: str | None, attempts: int) -> list[str]:
    """Return the worker of each attempt, oldest first; ``""`` where it is not remembered any more.

    Args:
        records: the failed attempts that the job remembers (the newest 20).
        node: who runs it now, or ran it last with success.
        attempts: how many there were.
    """
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
    enqueued_at: datetime | None = None,
    started_at: datetime | None = None,
    last_attempted_at: datetime | None = None,
    finished_at: datetime | None = None,
    value: Any = None,
) -> TaskResult[Any]:
    """Put a ``TaskResult`` together; ``data`` is the job's payload, ``value`` what the task returned."""
    result: TaskResult[Any] = TaskResult(
        task=task,
        id=key,
        status=status,
        enqueued_at=local(enqueued_at),
        started_at=local(started_at),
        last_attempted_at=local(last_attempted_at),
        finished_at=local(finished_at),
        args=data.get("args", []) if data else [],
        kwargs=data.get("kwargs", {}) if data else {},
        backend=backend,
        errors=errors,
        worker_ids=worker_ids,
    )
    if value is not None:
        object.__setattr__(result, "_return_value", value)
    return result


def result_of_row(key: str, row: tuple[Any, ...], alias: str) -> TaskResult[Any]:
    """Make a result of a row of ``task_result.sql``.

    Raises:
        TaskNotFound: the task is not there any more.
    """
    (state, queue, priority, name, data, errors_text, value, node, deliveries, run_at, created_at, first, last,
     finished, dead) = row  # fmt: skip
    records = [record for record in _list(errors_text) if isinstance(record, dict)]
    status = TaskResultStatus.FAILED if dead else _STATUSES[state]
    try:
        declared = find_task(name)
    except TaskNotFound as error:
        raise TaskNotFound(f"The result {key} is there, but its task is not: {error}") from error
    task = copy_with(
        declared, {"priority": priority, "queue_name": queue, "run_after": local(run_at), "backend": alias}
    )
    running = state == JobState.LEASED or status is TaskResultStatus.SUCCESSFUL
    return make_result(
        task,
        key,
        status,
        data=_object(data),
        backend=alias,
        errors=errors_of(records),
        worker_ids=workers_of(records, node if running else None, deliveries),
        enqueued_at=created_at,
        started_at=first,
        last_attempted_at=last,
        finished_at=finished,
        value=None if value is None else codec.loads(value),
    )


def _object(text: str | None) -> dict[str, Any]:
    value = None if text is None else codec.loads(text)
    return value if isinstance(value, dict) else {}


def _list(text: str | None) -> list[Any]:
    value = None if text is None else codec.loads(text)
    return value if isinstance(value, list) else []

"""Results of calls that are about to be stored, and what is noted on them afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, cast

from .api import Task, TaskResult, TaskResultStatus
from .waiting import LeaseQueueTaskResult

#: Put a value into a field: setting it by name, as a frozen dataclass does, takes four times as long.
_put: dict[str, Any] = {
    field.name: getattr(LeaseQueueTaskResult, field.name).__set__ for field in fields(LeaseQueueTaskResult)
}
_put_task, _put_id, _put_status, _put_args, _put_kwargs, _put_backend, _put_errors, _put_workers = (
    _put.pop(name) for name in ("task", "id", "status", "args", "kwargs", "backend", "errors", "worker_ids")
)
#: Fields of which nothing is known before the job is stored.
_unknown = tuple(_put.values())
_READY = TaskResultStatus.READY
_put_time = _put["enqueued_at"]
_put_created: Any = LeaseQueueTaskResult._created.__set__  # type: ignore[attr-defined]  # a slot


def new_result(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], backend: str) -> TaskResult[Any]:
    """Return the result of a call, with its arguments normalised to JSON.

    Args:
        task: the task.
        args: positional arguments.
        kwargs: keyword arguments.
        backend: alias of the backend that enqueues it.

    Raises:
        TypeError, ValueError: they are not JSON.
    """
    result: LeaseQueueTaskResult[Any] = object.__new__(LeaseQueueTaskResult)
    _put_task(result, task)
    _put_id(result, "")
    _put_status(result, _READY)
    _put_args(result, list(args))
    _put_kwargs(result, dict(kwargs))
    _put_backend(result, backend)
    _put_errors(result, [])
    _put_workers(result, [])
    for put in _unknown:
        put(result, None)
    try:
        result.__post_init__()
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"The arguments of {task.module_path} must be JSON: {error}. Give the ids of objects, and dates and"
            " decimals as text."
        ) from error
    return cast("TaskResult[Any]", result)


def note_stored(result: TaskResult[Any], id: str | None, at: datetime | None) -> None:
    """Note on the result of a call that its job was stored.

    Args:
        result: the result.
        id: its id; ``None``: it has one.
        at: when it was stored.
    """
    if id is not None:
        _put_id(result, id)
    _put_time(result, at)
    _put_created(result, True)

"""One tick of a recurring task: taken and enqueued in one transaction, through Django's tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction
from django.utils.module_loading import import_string

from ...engine import DjangoExecutor, codec
from ...engine.rows import number_of
from ...exceptions import InvalidOption
from ...models import RecurringTask


def find_task(path: str) -> Any:
    """Return the task at a dotted path.

    Raises:
        InvalidOption: there is nothing there, or it is not a task.
    """
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidOption(f"there is no task at {path!r}: {error}") from error
    if not (hasattr(found, "module_path") and hasattr(found, "using") and hasattr(found, "enqueue")):
        raise InvalidOption(f"{path!r} is not a task: decorate the function with @task.")
    return found


class DueTask(NamedTuple):
    """What a recurring task enqueues."""

    task: str
    args_json: str
    kwargs_json: str
    backend: str
    queue_name: str
    priority: int | None


def _take(alias: str, task_id: int, tick: datetime, following: datetime) -> DueTask | None:
    """Move the task's last tick: only one of all who try gets its row."""
    params = {"id": task_id, "tick": tick, "next_tick_at": following}
    rows = DjangoExecutor(alias).fetch("recurring_take", params)
    return DueTask._make(rows[0]) if rows else None


def enqueue_task(taken: DueTask) -> Any:
    """Enqueue a recurring task once, through its backend; return the task's result.

    Raises:
        Exception: whatever the task's backend raises.
    """
    task = find_task(taken.task)
    changes = {"backend": taken.backend or None, "queue_name": taken.queue_name or None, "priority": taken.priority}
    task = task.using(**{key: value for key, value in changes.items() if value is not None})
    return task.enqueue(*codec.loads(taken.args_json), **codec.loads(taken.kwargs_json))


def enqueue_tick(alias: str, task_id: int, tick: datetime, following: datetime) -> bool:
    """Enqueue a tick unless somebody else has; the tick is taken if and only if the job is there.

    (A task of a backend that does not write to this database is enqueued in between, so at most once.)

    Args:
        alias: database of the recurring tasks.
        task_id: number of the recurring task.
        tick: which tick.
        following: when the next one is due.

    Returns:
        Whether it was enqueued here.

    Raises:
        Exception: whatever the task's backend raises; the tick is not taken then.
    """
    with transaction.atomic(using=alias):
        taken = _take(alias, task_id, tick, following)
        if taken is None:
            return False
        seq = number_of(enqueue_task(taken).id)
        RecurringTask.objects.using(alias).filter(pk=task_id).update(last_seq=seq)
    return True


def skip_tick(alias: str, task_id: int, tick: datetime, following: datetime) -> None:
    """Take a tick without enqueuing it: trying again would fail again."""
    with transaction.atomic(using=alias):
        _take(alias, task_id, tick, following)

"""Tasks as the worker runs them: each looked up once, with the backend that its job names."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any

from .api import DEFAULT_TASK_BACKEND_ALIAS, BaseTaskBackend, Task, task_backends
from .backend import LeaseQueueBackend
from .exceptions import TaskNotFound
from .registry import find_task


def backend_class(alias: str) -> type[BaseTaskBackend]:
    """Return the class of a backend: ``LeaseQueueBackend``, or one that a host derived from it.

    Raises:
        TaskNotFound: it is not, or there is no such alias in ``TASKS``.
    """
    try:
        backend = task_backends[alias]
    except Exception as error:
        raise TaskNotFound(f"The job's backend {alias!r} cannot be used: {error}") from error
    if not isinstance(backend, LeaseQueueBackend):
        raise TaskNotFound(
            f"The job's backend {alias!r} is not a LeaseQueueBackend: this worker does not run its tasks."
        )
    return type(backend)


class TaskEntry:
    """A task with what the worker needs for each run, looked up once."""

    __slots__ = (
        "alias",
        "atomic",
        "func",
        "is_async",
        "keeps_slot",
        "path",
        "sender",
        "takes_context",
        "task",
        "timeout",
    )

    def __init__(self, task: Task[..., Any], alias: str, sender: type[BaseTaskBackend]) -> None:
        self.task = task
        self.alias = alias
        #: The class of the backend, which sends the signals.
        self.sender = sender
        self.path = task.module_path
        self.func = task.func
        self.is_async = iscoroutinefunction(task.func)
        self.takes_context = task.takes_context
        #: In seconds, ``None`` for none; Django's own tasks have none.
        self.timeout: float | None = getattr(task, "timeout", None)
        self.atomic: bool = getattr(task, "atomic", False)
        #: Whether its jobs keep the slot of their limit while they sleep or wait.
        self.keeps_slot: bool = getattr(getattr(task, "limit", None), "while_suspended", False)


def find_entry(path: str | None, alias: str = DEFAULT_TASK_BACKEND_ALIAS) -> TaskEntry:
    """Return the task under ``path`` if jobs of the backend ``alias`` may run it.

    Raises:
        TaskNotFound: it is not there, or may not.
    """
    return TaskEntry(find_task(path), alias, backend_class(alias))

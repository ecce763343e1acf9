"""Lookup of tasks by their name: the only way from a job in the database to code that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from .api import DEFAULT_TASK_BACKEND_ALIAS, BaseTaskBackend, Task, task_backends
from .exceptions import TaskNotFound
from .options import BackendOptions

#: Most characters of the path of a task.
_MAX_PATH = 512


def find_task(path: str | None) -> Task[..., Any]:
    """Return the task that a module declares under ``path``, importing the module if need be."""
    if not path or len(path) > _MAX_PATH or not all(part.isidentifier() for part in path.split(".")):
        raise TaskNotFound(
            f"{path!r} is not the path of a task, such as 'shop.tasks.send_receipt'. Was the job enqueued by something"
            " other than a task? Its queue is not for task workers then."
        )
    module, names = _import(path)
    found: Any = module
    for name in names:
        found = getattr(found, name, None)
    if isinstance(found, Task):
        return found
    if found is None:
        raise TaskNotFound(
            f"There is no task {path!r}: {module.__name__} has no such name. Was it renamed or removed, or does this"
            " worker run older code than the process that enqueued it?"
        )
    raise TaskNotFound(
        f"{path!r} is not a task but {type(found).__name__}: only functions decorated with @task are run."
    )


def _import(path: str) -> tuple[Any, list[str]]:
    """Return the module that the longest possible part of the path names, and the names behind it."""
    parts = path.split(".")
    for size in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:size])
        try:
            return import_module(name), parts[size:]
        except ModuleNotFoundError as error:
            # The module itself, or a package above it: try one level up. Anything else is missing inside of it.
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise TaskNotFound(f"The module of task {path!r} cannot be imported: {error}.") from error
        except (Exception, SystemExit) as error:
            raise TaskNotFound(f"The module of task {path!r} cannot be imported: {error!r}.") from error
    raise TaskNotFound(
        f"There is no module for task {path!r}. Is the app installed here, and does this worker run the same code as"
        " the process that enqueued it?"
    )


def check_findable(task: Task[..., Any]) -> None:
    """Refuse a task that no worker could find by its name."""
    path = task.module_path
    if path.startswith("__main__."):
        raise TaskNotFound(
            f"The task {path!r} is declared in a script or shell: move it into a module, for workers to find."
        )
    find_task(path)


def copy_with(task: Task[..., Any], changes: Mapping[str, Any]) -> Task[..., Any]:
    """Return a copy of a task with other attributes, unchecked: what was enqueued may not be allowed any more."""
    copy = object.__new__(type(task))
    for item in fields(task):
        object.__setattr__(copy, item.name, changes.get(item.name, getattr(task, item.name)))
    return copy


def backend_class(alias: str) -> type[BaseTaskBackend]:
    """Return the class of a backend: ``LeaseQueueBackend``, or one that a host derived from it."""
    try:
        backend = task_backends[alias]
    except Exception as error:
        raise TaskNotFound(f"The job's backend {alias!r} cannot be used: {error}") from error
    if not isinstance(getattr(backend, "config", None), BackendOptions):
        raise TaskNotFound(
            f"The job's backend {alias!r} is not a LeaseQueueBackend: this worker does not run its tasks."
        )
    return type(backend)


class TaskEntry(NamedTuple):
    """A task with what the worker needs for each run, looked up once."""

    task: Task[..., Any]
    alias: str
    sender: type[BaseTaskBackend]
    """The class of the backend, which sends the signals."""
    path: str
    func: Any
    is_async: bool
    takes_context: bool
    timeout: float | None
    isolate: bool
    atomic: bool
    ignore_result: bool
    keeps_slot: bool
    """Whether its jobs keep the slot of their limit while they sleep or wait."""


def find_entry(path: str | None, alias: str = DEFAULT_TASK_BACKEND_ALIAS) -> TaskEntry:
    """Return the task under ``path`` if jobs of the backend ``alias`` may run it."""
    task = find_task(path)
    # Tasks of Django's own class have none of the options from ``timeout`` on.
    own = {name: getattr(task, name, False) for name in ("isolate", "atomic", "ignore_result")}
    return TaskEntry(
        task, alias, backend_class(alias), task.module_path, task.func, iscoroutinefunction(task.func),
        task.takes_context, getattr(task, "timeout", None), **own,
        keeps_slot=getattr(getattr(task, "limit", None), "while_suspended", False),
    )  # fmt: skip

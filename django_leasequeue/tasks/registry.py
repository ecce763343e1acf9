"""Lookup of tasks by their name: the only way from a job in the database to code that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from .api import Task
from .exceptions import TaskNotFound

#: Most characters of the path of a task.
_MAX_PATH = 512


def find_task(path: str | None) -> Task[..., Any]:
    """Return the task that a module declares under ``path``, importing the module if need be.

    Raises:
        TaskNotFound: there is no such module or name, or it is not a task.
    """
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
    """Refuse a task that no worker could find by its name.

    Raises:
        TaskNotFound: its path does not lead to a task.
    """
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

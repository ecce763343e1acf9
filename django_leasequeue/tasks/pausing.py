"""Pausing a task: its jobs stay where they are until it is resumed."""

from __future__ import annotations

from typing import Any

from .. import engine
from ..engine.jobs.pausing import pause_task, resume_task
from ..engine.queues import routing
from ..exceptions import InvalidOption
from ..twins import Body, arun, either, run
from .api import Task, task_backends


def pause(task: Task[..., Any] | str, *, project: str | None = None) -> bool:
    """Let no further job of a task start, in any queue and database of its project; running ones go on.

    In a transaction of the caller the pause begins when that commits.

    Args:
        task: the task, or its import path.
        project: the tenant; by default that of the task's backend, of a path none.

    Returns:
        False if it is paused already.

    Raises:
        InvalidOption: this is no task and no path, or 1,000 tasks of the project are paused.
    """
    return run(_change(pause_task, task, project))


async def apause(task: Task[..., Any] | str, *, project: str | None = None) -> bool:
    """Async twin of ``pause``: on an async connection of its own, not in a transaction of the caller."""
    return await arun(_change(pause_task, task, project))


def resume(task: Task[..., Any] | str, *, project: str | None = None) -> bool:
    """End the pause of a task; see ``pause``. Return False if it is not paused."""
    return run(_change(resume_task, task, project))


async def aresume(task: Task[..., Any] | str, *, project: str | None = None) -> bool:
    """Async twin of ``resume``: on an async connection of its own, not in a transaction of the caller."""
    return await arun(_change(resume_task, task, project))


def _change(operation: Any, task: Any, project: str | None) -> Body[bool]:
    name = task
    if isinstance(task, Task):
        name, backend = task.module_path, task_backends[task.backend]
        if not hasattr(backend, "config"):
            raise InvalidOption(f"task must be one of a LeaseQueueBackend; {name} has a {type(backend).__name__}.")
        project = backend.config.project if project is None else project
    done = False
    for alias in routing.aliases():
        done |= yield either(engine.run, engine.arun, operation(name, project=project or ""), alias)
    return done

"""The context of a running task: Django's ``TaskContext`` with the control of its job, and ``current()``."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .api import TaskContext

if TYPE_CHECKING:
    from ..worker.control import JobControl

#: The control of the job that runs here: in this thread, or in this asyncio task.
running: ContextVar[JobControl | None] = ContextVar("leasequeue_running", default=None)


def current() -> JobControl | None:
    """Return the ``JobControl`` of the job that runs in this thread or asyncio task; ``None`` outside of a worker.

    It has the job and its lease, tells whether the lease is lost, and takes progress reports. Functions that a task
    calls may use it; in threads that the task starts by itself it is ``None``.
    """
    return running.get()


@dataclass(frozen=True, kw_only=True)
class LeaseQueueContext(TaskContext):
    """Django's ``TaskContext`` with the control of the job: the first argument of tasks with ``takes_context=True``."""

    control: JobControl
    """The job, whether its lease is lost, and progress reports; see ``current``."""

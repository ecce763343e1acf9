"""What a running task can know of its own run."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .api import TaskContext

if TYPE_CHECKING:
    from ..worker.handler import JobControl

#: The control of the job that runs here: in this thread, or in this asyncio task.
running: ContextVar[JobControl | None] = ContextVar("leasequeue_running", default=None)


def current() -> JobControl | None:
    """Return the control of the job that runs here, ``None`` outside of a worker.

    It knows the job and its lease, whether the lease is lost, and takes progress reports. Functions that a task calls
    may use it too; threads that the task starts by itself do not see it.
    """
    return running.get()


@dataclass(frozen=True, kw_only=True)
class LeaseQueueContext(TaskContext):
    """Django's ``TaskContext`` with the job's control."""

    control: JobControl

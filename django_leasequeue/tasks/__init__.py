"""Django's Tasks on the lease engine: the backend, the task class, and what tasks may use.

Safe to import at any time: no model is loaded before a task is enqueued or a result read.
"""

from .backend import LeaseQueueBackend
from .backoff import Backoff
from .context import LeaseQueueContext, current
from .exceptions import FailForGood, ResultNotSerializable, RetryLater, TaskNotFound
from .task import LeaseQueueTask, task

__all__ = [
    "Backoff",
    "FailForGood",
    "LeaseQueueBackend",
    "LeaseQueueContext",
    "LeaseQueueTask",
    "ResultNotSerializable",
    "RetryLater",
    "TaskNotFound",
    "current",
    "task",
]

"""Django's Tasks on the lease engine: the backend, the task class, and what tasks may use.

Safe to import at any time: no model is loaded before a task is enqueued or a result read.
"""

from .backend import LeaseQueueBackend
from .backoff import Backoff
from .canvas import chain, chord, group
from .context import LeaseQueueContext, current
from .exceptions import FailForGood, ResultNotSerializable, RetryLater, TaskNotFound
from .limit import Limit
from .signature import Signature
from .task import LeaseQueueTask, task
from .workflow import Workflow
from .workflow_result import WorkflowResult, aget_workflow_result, get_workflow_result

__all__ = [
    "Backoff",
    "FailForGood",
    "LeaseQueueBackend",
    "LeaseQueueContext",
    "LeaseQueueTask",
    "Limit",
    "ResultNotSerializable",
    "RetryLater",
    "Signature",
    "TaskNotFound",
    "Workflow",
    "WorkflowResult",
    "aget_workflow_result",
    "chain",
    "chord",
    "current",
    "get_workflow_result",
    "group",
    "task",
]

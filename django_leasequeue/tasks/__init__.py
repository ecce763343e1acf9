"""Django's Tasks on the lease engine: the backend, the task class, and what tasks may use.

Safe to import at any time: no model is loaded before a task is enqueued or a result read.
"""

from ..engine.flow.declared import Limit
from .backend import LeaseQueueBackend
from .backoff import Backoff
from .canvas import chain, chord, group
from .context import LeaseQueueContext, current
from .current_workflow import CurrentWorkflow, acurrent_workflow, current_workflow
from .events import aemit, emit
from .exceptions import FailForGood, ResultNotSerializable, RetryLater, TaskNotFound
from .inputs import Outcome
from .signature import Signature
from .step import step
from .task import LeaseQueueTask, task
from .workflow import Workflow
from .workflow_result import WorkflowResult, aget_workflow_result, get_workflow_result

__all__ = [
    "Backoff",
    "CurrentWorkflow",
    "FailForGood",
    "LeaseQueueBackend",
    "LeaseQueueContext",
    "LeaseQueueTask",
    "Limit",
    "Outcome",
    "ResultNotSerializable",
    "RetryLater",
    "Signature",
    "TaskNotFound",
    "Workflow",
    "WorkflowResult",
    "acurrent_workflow",
    "aemit",
    "aget_workflow_result",
    "chain",
    "chord",
    "current",
    "current_workflow",
    "emit",
    "get_workflow_result",
    "group",
    "step",
    "task",
]

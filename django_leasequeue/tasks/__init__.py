"""Django's Tasks on the lease engine: the backend, the task class, and what tasks may use.

Start in ``backend.py`` (a call is enqueued) and ``handler.py`` (the worker runs it); ``decorator.py`` declares a task,
``calls.py`` makes jobs of calls, ``results.py`` is what callers get back, ``lookup.py`` finds it again. Workflows:
``signature.py`` and ``canvas.py`` draw the graph, ``starting.py`` enqueues it. `queue`, doors,
`testing` and the admin may import `tasks`; it imports `worker`, `notify`, the engine and `conf`.
Safe to import at any time: no model is loaded before a task is enqueued or a result read.
"""

from ..engine.flow.declared import Limit
from .backend import LeaseQueueBackend
from .backoff import Backoff
from .batch import Batch, BatchCall
from .canvas import Workflow, chain, chord, group
from .context import LeaseQueueContext, aemit, current, emit, step
from .decorator import task
from .exceptions import (
    ContextNotRestored,
    DeadlineExceeded,
    FailForGood,
    ResultNotSerializable,
    RetryLater,
    TaskNotFound,
)
from .pausing import apause, aresume, pause, resume
from .signature import Outcome, Signature
from .starting import CurrentWorkflow, acurrent_workflow, current_workflow
from .task_class import LeaseQueueTask
from .workflow_result import WorkflowResult, aget_workflow_result, get_workflow_result

__all__ = [
    "Backoff", "Batch", "BatchCall", "ContextNotRestored", "CurrentWorkflow", "DeadlineExceeded", "FailForGood",
    "LeaseQueueBackend", "LeaseQueueContext", "LeaseQueueTask", "Limit", "Outcome", "ResultNotSerializable",
    "RetryLater", "Signature", "TaskNotFound", "Workflow", "WorkflowResult", "acurrent_workflow", "aemit",
    "aget_workflow_result", "apause", "aresume", "chain", "chord", "current", "current_workflow", "emit",
    "get_workflow_result", "group", "pause", "resume", "step", "task",
]  # fmt: skip

"""The engine: the only code that changes jobs. Operations run in sync code (``run``) and in async code (``arun``).

Its folders: `jobs`, `leases`, `dead`, `queues`, `topics` and `flow` (limits, workflows). Beside them: `runner.py` and
`pool.py` carry operations out, `payloads.py` puts what is large into a storage, `partitions.py` and `verify.py` keep
the tables in order. Everything above the engine (tasks, worker, reaper, queue, doors, admin) calls it; it imports
models, `sql` and `conf`. Start at `operation.py` (an operation is a generator of statements), then `leases/claim.py`.
"""

from __future__ import annotations

from ..words import HELD
from .dead.deadletter import Redriven, redrive
from .django_executor import DjangoExecutor, run
from .flow.advance import advance, expire_workflows
from .flow.declared import Limited, LimitValues, reset_limit, set_limits
from .flow.figures import Input, NodeRow, WorkflowStatus, get_workflow, inputs, member, workflow_nodes, workflow_of
from .flow.workflows import Node, extend_workflow, start_workflow
from .jobs.cancel import cancel, cancel_workflow
from .jobs.enqueue import enqueue
from .jobs.read import JobRow, Page, list_jobs
from .jobs.remove import purge
from .leases.claim import claim
from .leases.finish import ack, finish
from .leases.floor import advance_floors, mend_floors
from .leases.settle import extend, nack, release
from .leases.sweep import expire, expire_results, promote, sweep
from .operation import Operation, Work
from .pool import arun
from .queues.queues import QueueInfo, configure, create, delete, get, list_queues, pause
from .queues.stats import Counts, QueueState, Totals, counts, counts_of, state, totals
from .rows import (
    Ending,
    Enqueued,
    EnqueueStatus,
    Failure,
    LeasedJob,
    NewJob,
    Outcome,
    Release,
    Released,
    Settled,
    make_id,
    make_lease_id,
    parse_lease_id,
)
from .runner import AsyncConnectionExecutor, ConnectionExecutor

__all__ = [
    "HELD", "AsyncConnectionExecutor", "ConnectionExecutor", "Counts", "DjangoExecutor", "Ending", "EnqueueStatus",
    "Enqueued", "Failure", "Input", "JobRow", "LeasedJob", "LimitValues", "Limited", "NewJob", "Node", "NodeRow",
    "Operation", "Outcome", "Page", "QueueInfo", "QueueState", "Redriven", "Release", "Released", "Settled", "Totals",
    "Work", "WorkflowStatus", "ack", "advance", "advance_floors", "arun", "cancel", "cancel_workflow", "claim",
    "configure", "counts", "counts_of", "create", "delete", "enqueue", "expire", "expire_results", "expire_workflows",
    "extend", "extend_workflow", "finish", "get", "get_workflow", "inputs", "list_jobs", "list_queues", "make_id",
    "make_lease_id", "member", "mend_floors", "nack", "parse_lease_id", "pause", "promote", "purge", "redrive",
    "release", "reset_limit", "run", "set_limits", "start_workflow", "state", "sweep", "totals",
    "workflow_nodes", "workflow_of",
]  # fmt: skip

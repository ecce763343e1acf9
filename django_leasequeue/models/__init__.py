"""The models by role; import their names from here.

`job` holds the model that projects query. `queue`, `storedjob`, `history` and `flow` hold tables that the engine
writes, `operators` and `lake` those of people, workers and the lake. Models import enums and exceptions, no engine.
"""

from ..enums import (
    DEAD_LETTER_SELF,
    Backoff,
    DedupUntil,
    Discard,
    Durability,
    EventKind,
    ExhaustAt,
    FloorKind,
    JobFlag,
    JobState,
    JobStatus,
    Lane,
    LateAck,
    MemberState,
    PriorityOrder,
    QueueType,
    Requeue,
    ResultState,
    TurnKind,
    WorkflowState,
)
from .flow import EmittedEvent, FlowTurn, JobStep, Limit, LimitKey, Member, Workflow
from .history import Attempt, DeadLetter, JobEvent, JobResult, LeaseEvent
from .job import Job, JobQuerySet
from .lake import LakeConsumer, LakeFigure, LakeSlice, LakeStage, LakeWrite
from .operators import (
    ApiKey,
    ApiScope,
    BulkOperation,
    OperationKind,
    OperationState,
    OperatorAction,
    PausedTask,
    ReaperTerm,
    SavedFilter,
    Worker,
)
from .queue import (
    IdempotencyKey,
    Queue,
    QueueFloor,
    QueueQuerySet,
    QueueRank,
    QueueStat,
    Route,
    Timeline,
    TopicState,
    UniqueKey,
)
from .recurring import RecurringTask
from .storedjob import Claim, ClaimWaiter, Delayed, LargeObject, LiveJob, Ready, Record, StoredJob

__all__ = [
    "DEAD_LETTER_SELF", "ApiKey", "ApiScope", "Attempt", "Backoff", "BulkOperation", "Claim", "ClaimWaiter",
    "DeadLetter", "DedupUntil", "Delayed", "Discard", "Durability", "EmittedEvent", "EventKind", "ExhaustAt",
    "FloorKind", "FlowTurn", "IdempotencyKey", "Job", "JobEvent", "JobFlag", "JobQuerySet", "JobResult",
    "JobState", "JobStatus", "JobStep", "LakeConsumer", "LakeFigure", "LakeSlice", "LakeStage", "LakeWrite",
    "Lane", "LargeObject", "LateAck", "LeaseEvent", "Limit", "LimitKey", "LiveJob", "Member", "MemberState",
    "OperationKind", "OperationState", "OperatorAction", "PausedTask", "PriorityOrder", "Queue", "QueueFloor",
    "QueueQuerySet", "QueueRank", "QueueStat", "QueueType", "Ready", "ReaperTerm", "Record", "RecurringTask", "Requeue",
    "ResultState", "Route", "SavedFilter", "StoredJob", "Timeline", "TopicState", "TurnKind", "UniqueKey",
    "Worker", "Workflow", "WorkflowState",
]  # fmt: skip

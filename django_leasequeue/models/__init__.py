"""The tables, one file each."""

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
from .apikey import ApiKey, ApiScope
from .attempt import Attempt
from .audit import OperatorAction
from .claim import Claim
from .deadletter import DeadLetter
from .emittedevent import EmittedEvent
from .event import JobEvent, LeaseEvent
from .floor import QueueFloor, QueueRank
from .idempotency import IdempotencyKey
from .job import Job, JobQuerySet, JobStatus
from .jobstep import JobStep
from .lake import LakeConsumer, LakeFigure, LakeSlice, LakeStage, LakeWrite
from .largeobject import LargeObject
from .limit import Limit, LimitKey
from .member import FlowTurn, Member
from .operation import BulkOperation, OperationKind, OperationState
from .places import Delayed, Ready, Record
from .queue import Queue, QueueQuerySet
from .recurring import RecurringTask
from .result import JobResult
from .savedfilter import SavedFilter
from .stat import QueueStat
from .storedjob import LiveJob, StoredJob
from .topic import Timeline, TopicState
from .uniquekey import UniqueKey
from .waiter import ClaimWaiter
from .worker import Worker
from .workflow import Workflow

__all__ = [
    "DEAD_LETTER_SELF",
    "ApiKey",
    "ApiScope",
    "Attempt",
    "Backoff",
    "BulkOperation",
    "Claim",
    "ClaimWaiter",
    "DeadLetter",
    "DedupUntil",
    "Delayed",
    "Discard",
    "Durability",
    "EmittedEvent",
    "EventKind",
    "ExhaustAt",
    "FloorKind",
    "FlowTurn",
    "IdempotencyKey",
    "Job",
    "JobEvent",
    "JobFlag",
    "JobQuerySet",
    "JobResult",
    "JobState",
    "JobStatus",
    "JobStep",
    "LakeConsumer",
    "LakeFigure",
    "LakeSlice",
    "LakeStage",
    "LakeWrite",
    "Lane",
    "LargeObject",
    "LateAck",
    "LeaseEvent",
    "Limit",
    "LimitKey",
    "LiveJob",
    "Member",
    "MemberState",
    "OperationKind",
    "OperationState",
    "OperatorAction",
    "PriorityOrder",
    "Queue",
    "QueueFloor",
    "QueueQuerySet",
    "QueueRank",
    "QueueStat",
    "QueueType",
    "Ready",
    "Record",
    "RecurringTask",
    "Requeue",
    "ResultState",
    "SavedFilter",
    "StoredJob",
    "Timeline",
    "TopicState",
    "TurnKind",
    "UniqueKey",
    "Worker",
    "Workflow",
    "WorkflowState",
]

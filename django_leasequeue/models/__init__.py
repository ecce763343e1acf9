"""The tables, one file each."""

from .apikey import ApiKey, ApiScope
from .audit import OperatorAction
from .claim import Claim
from .deadletter import DeadLetter
from .enums import (
    DEAD_LETTER_SELF,
    Backoff,
    DedupUntil,
    Discard,
    Durability,
    EventKind,
    ExhaustAt,
    FloorKind,
    JobState,
    LateAck,
    PriorityOrder,
    QueueType,
    Requeue,
    ResultState,
)
from .event import LeaseEvent
from .floor import QueueFloor
from .idempotency import IdempotencyKey
from .job import Job
from .lake import LakeConsumer, LakeFigure, LakeSlice, LakeStage, LakeWrite
from .operation import BulkOperation, OperationKind, OperationState
from .queue import Queue
from .recurring import RecurringTask
from .result import JobResult
from .savedfilter import SavedFilter
from .stat import QueueStat
from .topic import TopicState
from .waiter import ClaimWaiter
from .worker import Worker

__all__ = [
    "DEAD_LETTER_SELF",
    "ApiKey",
    "ApiScope",
    "Backoff",
    "BulkOperation",
    "Claim",
    "ClaimWaiter",
    "DeadLetter",
    "DedupUntil",
    "Discard",
    "Durability",
    "EventKind",
    "ExhaustAt",
    "FloorKind",
    "IdempotencyKey",
    "Job",
    "JobResult",
    "JobState",
    "LakeConsumer",
    "LakeFigure",
    "LakeSlice",
    "LakeStage",
    "LakeWrite",
    "LateAck",
    "LeaseEvent",
    "OperationKind",
    "OperationState",
    "OperatorAction",
    "PriorityOrder",
    "Queue",
    "QueueFloor",
    "QueueStat",
    "QueueType",
    "RecurringTask",
    "Requeue",
    "ResultState",
    "SavedFilter",
    "TopicState",
    "Worker",
]

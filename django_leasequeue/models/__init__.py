"""The tables, one file each."""

from .apikey import ApiKey, ApiScope
from .claim import Claim
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
from .queue import Queue
from .recurring import RecurringTask
from .result import JobResult
from .stat import QueueStat
from .topic import TopicState
from .waiter import ClaimWaiter
from .worker import Worker

__all__ = [
    "DEAD_LETTER_SELF",
    "ApiKey",
    "ApiScope",
    "Backoff",
    "Claim",
    "ClaimWaiter",
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
    "PriorityOrder",
    "Queue",
    "QueueFloor",
    "QueueStat",
    "QueueType",
    "RecurringTask",
    "Requeue",
    "ResultState",
    "TopicState",
    "Worker",
]

"""The tables, one file each."""

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
from .job import Job
from .queue import Queue
from .recurring import RecurringTask
from .result import JobResult
from .stat import QueueStat
from .worker import Worker

__all__ = [
    "DEAD_LETTER_SELF",
    "Backoff",
    "Claim",
    "DedupUntil",
    "Discard",
    "Durability",
    "EventKind",
    "ExhaustAt",
    "FloorKind",
    "Job",
    "JobResult",
    "JobState",
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
    "Worker",
]

"""The words of the tables; they live outside of this package so that code which loads no model can use them."""

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
    PriorityOrder,
    QueueType,
    Requeue,
    ResultState,
)

__all__ = [
    "DEAD_LETTER_SELF",
    "Backoff",
    "DedupUntil",
    "Discard",
    "Durability",
    "EventKind",
    "ExhaustAt",
    "FloorKind",
    "JobFlag",
    "JobState",
    "Lane",
    "LateAck",
    "PriorityOrder",
    "QueueType",
    "Requeue",
    "ResultState",
]

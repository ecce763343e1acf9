"""QueueFloor and QueueRank: bounds of a queue that only rise, and the priorities that it has."""

from __future__ import annotations

from django.db import models

from ..enums import FloorKind
from .queue import Queue


class QueueFloor(models.Model):
    """A bound of a queue that only rises: the highest row of a kind and rank counts, lower ones are removed.

    Rows are added, never updated: a row that is updated under a held snapshot would grow a chain of versions that every
    reader walks, and its lock would make claims wait for whoever holds it.
    """

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    value = models.BigIntegerField()
    made_at = models.DateTimeField()
    kind = models.SmallIntegerField(choices=FloorKind.choices)
    rank = models.SmallIntegerField(default=0)

    class Meta:
        indexes = [
            # Read from its end: what was removed lies in front.
            models.Index(fields=["queue", "kind", "rank", "value"], name="leasequeue_floor_place"),
        ]

    def __str__(self) -> str:
        return f"floor of queue {self.queue_id}, kind {self.kind}, rank {self.rank}"


class QueueRank(models.Model):
    """A rank that jobs of a queue have had. Not unique: two first jobs of a priority do not wait for each other."""

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    rank = models.SmallIntegerField()

    class Meta:
        indexes = [models.Index(fields=["queue", "rank"], name="leasequeue_rank_place")]

    def __str__(self) -> str:
        return f"rank {self.rank} of queue {self.queue_id}"

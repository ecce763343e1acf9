"""QueueFloor: the lowest value worth reading in an index, so that nobody walks over dead entries."""

from __future__ import annotations

from django.db import models

from .enums import FloorKind
from .queue import Queue


class QueueFloor(models.Model):
    """A lower bound per queue, kind and rank (DESIGN section 4, point 3).

    ``value`` is what readers add to their condition. The sweep proposes a ``candidate``, a tick later notes a ``mark``
    (the next transaction id), and applies the candidate when every transaction below the mark has ended. Whoever makes
    something readable below ``value`` or ``candidate`` lowers both. A wrong floor delays a job until ``rechecked_at``
    is a minute old; it never loses one.
    """

    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    kind = models.SmallIntegerField(choices=FloorKind.choices)
    rank = models.SmallIntegerField(default=0)
    value = models.BigIntegerField(default=0)
    candidate = models.BigIntegerField(null=True)
    mark = models.BigIntegerField(null=True)
    candidate_at = models.DateTimeField(null=True)
    rechecked_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["queue", "kind", "rank"], name="leasequeue_floor_place"),
        ]

    def __str__(self) -> str:
        return f"floor of queue {self.queue_id}, kind {self.kind}, rank {self.rank}"

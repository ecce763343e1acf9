"""LeaseEvent: the append-only log of everything that happened to a lease."""

from __future__ import annotations

import pgtrigger
from django.contrib.postgres.indexes import BrinIndex
from django.db import models

from .enums import EventKind
from .guard import Guard
from .queue import Queue


class LeaseEvent(models.Model):
    """One row of the lease log, written by the statement that changed the job (DESIGN section 3).

    The table is partitioned by range of ``id``; the reaper makes partitions ahead and drops old ones.
    ``txid`` is the writing transaction: readers order by ``(txid, id)`` (DESIGN section 6).
    """

    id = models.BigAutoField(primary_key=True)
    txid = models.BigIntegerField()
    occurred_at = models.DateTimeField()
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    seq = models.BigIntegerField()
    claim = models.BigIntegerField(null=True)
    enqueued_at = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)
    deliveries = models.IntegerField(null=True)
    kind = models.SmallIntegerField(choices=EventKind.choices)
    node = models.TextField(null=True)
    name = models.TextField(null=True)
    detail = models.JSONField(null=True)

    class Meta:
        indexes = [
            BrinIndex(fields=["txid"], name="leasequeue_event_txid", pages_per_range=32),
            BrinIndex(fields=["occurred_at"], name="leasequeue_event_occurred", pages_per_range=32),
            # minmax-multi, because the numbers of old jobs come among those of new ones.
            BrinIndex(
                fields=["seq"],
                name="leasequeue_event_seq",
                pages_per_range=32,
                opclasses=["int8_minmax_multi_ops"],
            ),
        ]
        triggers = [
            Guard(
                name="append_only",
                when=pgtrigger.Before,
                operation=pgtrigger.Update | pgtrigger.Delete,
                constraint="leasequeue_event_append_only",
                message="the lease log is append-only; retention drops partitions, and maintenance passes with"
                ' pgtrigger.ignore("leasequeue.LeaseEvent:append_only")',
            ),
        ]

    def __str__(self) -> str:
        return f"event {self.id}"

"""ClaimWaiter: a claim that waits for its cohort (option ``claim_jitter_ms``)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from .queue import Queue


class ClaimWaiter(models.Model):
    """One claimer of a coalescing window, in whatever server process it waits.

    The table is unlogged: its rows live for one window, and a crash only makes the claimers ask again.
    """

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    node = models.TextField()
    size = models.IntegerField()
    lease_ms = models.BigIntegerField(null=True)
    connection = models.TextField(null=True)
    joined_at = models.DateTimeField()
    closes_at = models.DateTimeField()
    dealt_at = models.DateTimeField(null=True)
    #: The claim that it was dealt; null when nothing was left.
    claim = models.BigIntegerField(null=True)

    class Meta:
        indexes = [
            # The cohort of a queue, in order of arrival.
            models.Index(fields=["queue", "id"], name="leasequeue_waiter_open", condition=Q(dealt_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"claim waiter {self.pk}"

"""Claim: one row per claim call; what the sweep reads."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from .queue import Queue


class Claim(models.Model):
    """One successful claim call: its jobs, its node, and the earliest deadline among its jobs.

    ``id`` is the root of the fencing tokens. The row may outlive its jobs: the sweep removes it after its deadline.
    """

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    deadline = models.DateTimeField()
    created_at = models.DateTimeField()
    ttl_ms = models.BigIntegerField()
    grace_ms = models.BigIntegerField(default=0)
    node = models.TextField()
    connection = models.TextField(null=True)
    seqs = ArrayField(models.BigIntegerField())

    class Meta:
        indexes = [
            # Expired claims of a queue, oldest deadline first.
            models.Index(fields=["queue", "deadline"], name="leasequeue_claim_deadline"),
        ]

    def __str__(self) -> str:
        return f"claim {self.id}"

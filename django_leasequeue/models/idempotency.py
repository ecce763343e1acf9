"""IdempotencyKey: a write that was done, so that it is not done again."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from .queue import Queue


class IdempotencyKey(models.Model):
    """The numbers that a keyed write of a topic drew, kept for the topic's ``idempotency_window_ms``."""

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    key = models.TextField(db_collation="C")
    seqs = ArrayField(models.BigIntegerField(), default=list)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        indexes = [
            # Keys whose window is over, oldest first.
            models.Index(fields=["expires_at"], name="leasequeue_idempotency_expires"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["queue", "key"], name="leasequeue_idempotency_key"),
        ]

    def __str__(self) -> str:
        return f"idempotency key {self.key}"

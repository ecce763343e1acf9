"""JobResult: what is remembered of a finished job."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from .enums import ResultState
from .queue import Queue


class JobResult(models.Model):
    """The terminal outcome of a job, kept until ``expires_at``."""

    seq = models.BigIntegerField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    created_at = models.DateTimeField()
    first_claimed_at = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    claim = models.BigIntegerField(null=True)
    deliveries = models.IntegerField()
    rank = models.SmallIntegerField(default=0)
    state = models.SmallIntegerField(choices=ResultState.choices)
    key = models.TextField(null=True, db_collation="C")
    name = models.TextField(null=True)
    tag = models.TextField(null=True)
    node = models.TextField(null=True)
    data = models.JSONField(null=True)
    meta = models.JSONField(null=True)
    body = models.BinaryField(null=True)
    result = models.JSONField(null=True)
    result_body = models.BinaryField(null=True)
    progress = models.JSONField(null=True)
    errors = models.JSONField(null=True)
    error_type = models.TextField(null=True)
    error = models.TextField(null=True)
    fingerprint = models.TextField(null=True)

    class Meta:
        indexes = [
            # Retention: the expired ones, oldest first.
            models.Index(fields=["expires_at"], name="leasequeue_result_expires"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["key", "queue"], name="leasequeue_result_key", condition=Q(key__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"result of job {self.seq}"

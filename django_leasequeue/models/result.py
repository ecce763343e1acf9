"""JobResult: the outcome of a finished job."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from ..enums import ResultState
from .fields import PlainJSONField
from .queue import Queue
from .relations import SameNumber


class JobResult(models.Model):
    """How a job ended, kept until ``expires_at``; what was enqueued stays in Job until then."""

    seq = models.BigIntegerField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    claim = models.BigIntegerField(null=True)
    claimed_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    deliveries = models.IntegerField()
    state = models.SmallIntegerField(choices=ResultState.choices)
    node = models.TextField(null=True)
    result = PlainJSONField(null=True)
    result_body = models.BinaryField(null=True)
    error_type = models.TextField(null=True)
    error = models.TextField(null=True)
    fingerprint = models.TextField(null=True)

    job = SameNumber("leasequeue.Job")

    class Meta:
        indexes = [
            # Those that did not end well: the others have no entry.
            models.Index(fields=["queue", "finished_at"], name="leasequeue_result_failed", condition=~Q(state=1)),
            # Retention: the expired ones, oldest first.
            models.Index(fields=["expires_at"], name="leasequeue_result_expires"),
        ]

    def __str__(self) -> str:
        return f"result of job {self.seq}"

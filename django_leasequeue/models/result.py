"""JobResult: the outcome of a finished job."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from ..enums import ResultState
from .fields import PlainJSONField
from .queue import Queue
from .read_only import ReadOnlyManager, ReadOnlyModel
from .relations import SameNumber


class JobResult(ReadOnlyModel):
    """How a job ended, kept until ``expires_at``; what was enqueued stays in Job until then."""

    instead: ClassVar[dict[str, str]] = {
        "create": "Queue(name).ack(job, result)",
        "update": "Queue(name).ack(job, result)",
        "delete": "the queue's result_ttl_ms, after which it goes",
    }

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

    objects = ReadOnlyManager()

    class Meta:
        indexes = [
            # Those that did not end well: the others have no entry.
            models.Index(fields=["queue", "finished_at"], name="leasequeue_result_failed", condition=~Q(state=1)),
            # Retention: the expired ones, oldest first.
            models.Index(fields=["expires_at"], name="leasequeue_result_expires"),
        ]

    def __str__(self) -> str:
        return f"result of job {self.seq}"

"""Attempt: one failed attempt of a job."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from .queue import Queue
from .read_only import ReadOnlyManager, ReadOnlyModel
from .relations import SameNumber


class Attempt(ReadOnlyModel):
    """A delivery that ended in a failure, an expired lease included. The newest 20 of a job are kept."""

    instead: ClassVar[dict[str, str]] = {
        "create": "Queue(name).nack(job, error)",
    }

    id = models.BigAutoField(primary_key=True)
    seq = models.BigIntegerField()
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    at = models.DateTimeField()
    delivery = models.IntegerField()
    node = models.TextField(null=True)
    error_type = models.TextField()
    message = models.TextField(default="")
    traceback = models.TextField(default="")
    fingerprint = models.TextField(default="")

    job = SameNumber("leasequeue.Job", related_name="attempts")

    objects = ReadOnlyManager()

    class Meta:
        indexes = [models.Index(fields=["seq", "id"], name="leasequeue_attempt_job")]

    def __str__(self) -> str:
        return f"attempt {self.delivery} of job {self.seq}"

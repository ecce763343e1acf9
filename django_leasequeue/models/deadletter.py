"""DeadLetter: a job that used up its deliveries, with its cause; the indexes of triage."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from .queue import Queue
from .read_only import ReadOnlyManager, ReadOnlyModel
from .relations import SameNumber


class DeadLetter(ReadOnlyModel):
    """A dead letter: dead in its own queue, or moved to a dead-letter topic (where it is a record or a job as well)."""

    instead: ClassVar[dict[str, str]] = {
        "create": "Queue(name).nack(job, error)",
        "update": "Job.objects.dead().retry() or .redrive(queue)",
        "delete": "Job.objects.dead().discard(reason)",
    }

    seq = models.BigIntegerField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    dead_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    deliveries = models.IntegerField(default=0)
    #: Dead in its own queue: this row is its place.
    in_place = models.BooleanField(default=True)
    error_type = models.TextField(null=True)
    error = models.TextField(null=True)
    #: Empty where the failure has none: never null, so that one range of the index holds a group.
    fingerprint = models.TextField(default="", db_collation="C")

    job = SameNumber("leasequeue.Job")

    objects = ReadOnlyManager()

    class Meta:
        default_permissions = ()
        indexes = [
            # Groups of dead letters, and the newest of one: in full order, so that no planner sorts a group. The number
            # is an expression here: else a planner who thinks the table empty would read this index for one number. It
            # is in it once more to be read, so that no row is fetched for it.
            models.Index(
                "queue", "fingerprint", "dead_at", F("seq") + 0, include=["seq"], name="leasequeue_dead_cause"
            ),
            # To count a group: a twentieth of the index above in size, since equal keys are kept once. Its condition
            # is true of each row; a statement that does not say it cannot be planned over this index.
            models.Index(
                fields=["queue", "fingerprint"], name="leasequeue_dead_size", condition=Q(deliveries__lt=2**31 - 1)
            ),
            # Dead letters of a queue, the newest or the oldest first.
            models.Index("queue", "dead_at", F("seq") + 0, include=["seq"], name="leasequeue_dead_died"),
            models.Index(
                fields=["queue", "expires_at"], name="leasequeue_dead_expires", condition=Q(expires_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"dead letter {self.seq}"

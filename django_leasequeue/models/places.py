"""Where a job stands: Ready, Delayed, Record. One narrow row a job; a claim takes the row and leaves the job alone."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from ..enums import Lane
from .queue import Queue


class Ready(models.Model):
    """A job that a claim may take: it is ready if and only if it has a row here.

    Claim order is (rank, position). The fresh lane holds jobs whose positions only rise, so that a floor can keep
    claims from walking over dead index entries; the other one holds those that came back to an old place. A claim
    merges both.
    """

    pk = models.CompositePrimaryKey("queue", "rank", "lane", "position")
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    position = models.BigIntegerField()
    seq = models.BigIntegerField()
    ready_at = models.DateTimeField()
    deliveries = models.IntegerField(default=0)
    rank = models.SmallIntegerField()
    lane = models.SmallIntegerField(choices=Lane.choices)
    #: What whoever settles the job has to look at: see ``enums.JobFlag``.
    flags = models.SmallIntegerField(default=0)
    max_deliveries = models.IntegerField(null=True)
    expires_at = models.DateTimeField(null=True)
    tag = models.TextField(null=True, db_collation="C")

    class Meta:
        indexes = [
            # Claim by tag, in claim order within one tag.
            models.Index(
                fields=["queue", "tag", "rank", "position"],
                name="leasequeue_ready_tag",
                condition=Q(tag__isnull=False),
            ),
            # Messages past their TTL, oldest first.
            models.Index(
                fields=["queue", "expires_at"], name="leasequeue_ready_expires", condition=Q(expires_at__isnull=False)
            ),
            # Jobs that were moved to the back: readers by number find them out of their place.
            models.Index(fields=["queue", "seq"], name="leasequeue_ready_moved", condition=~Q(position=F("seq"))),
        ]

    def __str__(self) -> str:
        return f"ready job {self.seq}"


class Delayed(models.Model):
    """A job that is not due yet."""

    seq = models.BigIntegerField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    available_at = models.DateTimeField()
    deliveries = models.IntegerField(default=0)
    rank = models.SmallIntegerField()
    flags = models.SmallIntegerField(default=0)
    max_deliveries = models.IntegerField(null=True)
    expires_at = models.DateTimeField(null=True)
    tag = models.TextField(null=True, db_collation="C")

    class Meta:
        indexes = [
            # What promotion reads: the due ones only.
            models.Index(fields=["queue", "available_at"], name="leasequeue_delayed_due"),
            models.Index(
                fields=["queue", "expires_at"], name="leasequeue_delayed_expires", condition=Q(expires_at__isnull=False)
            ),
            models.Index(fields=["queue", "tag"], name="leasequeue_delayed_tag", condition=Q(tag__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"delayed job {self.seq}"


class Record(models.Model):
    """An entry of a log topic: read in order of its number, never leased."""

    pk = models.CompositePrimaryKey("queue", "seq")
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    seq = models.BigIntegerField()
    expires_at = models.DateTimeField(null=True)
    tag = models.TextField(null=True, db_collation="C")

    class Meta:
        indexes = [
            models.Index(
                fields=["queue", "expires_at"], name="leasequeue_record_expires", condition=Q(expires_at__isnull=False)
            ),
            models.Index(fields=["queue", "tag", "seq"], name="leasequeue_record_tag", condition=Q(tag__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"record {self.seq}"

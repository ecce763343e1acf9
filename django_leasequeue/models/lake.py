"""The lake's own tables: who reads the lease log, what is archived, what was written back, the newest figures."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from .base import PlainJSONField


class LakeConsumer(models.Model):
    """A named reader of the lease log. Retention keeps what it has not read (up to a limit), operators see its lag."""

    name = models.CharField(max_length=64, unique=True)
    #: Everything up to (txid, event) has been read and stored: a row of the log, whose jobs' events are never parted.
    txid = models.BigIntegerField(default=0)
    event = models.BigIntegerField(default=0)
    #: The horizon when it last reported: where it could have read to.
    horizon = models.BigIntegerField(default=0)
    registered_at = models.DateTimeField()
    #: When it last reported, and when its position last moved.
    seen_at = models.DateTimeField()
    moved_at = models.DateTimeField()
    #: Set when retention has dropped events that it had not read; the stream reports it once.
    overtaken_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class LakeSlice(models.Model):
    """A part of the lease log in the archive: its rows numbered from ``low`` up to ``high`` (exclusive).

    ``planned`` (being written; a crash leaves it so, and it is written anew), ``verified`` (counted and summed from the
    files; never written again), ``pruned`` (its rows are gone from the database).
    """

    low = models.BigIntegerField(unique=True)
    high = models.BigIntegerField()
    state = models.CharField(
        max_length=8,
        choices=[("planned", "planned"), ("verified", "verified"), ("pruned", "pruned")],
        default="planned",
    )
    attempt = models.CharField(max_length=32)
    path = models.TextField()
    files = models.JSONField(default=list)
    #: Events, one a job.
    rows = models.BigIntegerField(null=True)
    #: Sums over id, txid, seq and kind, as text: they outgrow 64 bits.
    sums = models.JSONField(null=True)
    min_txid = models.BigIntegerField(null=True)
    max_txid = models.BigIntegerField(null=True)
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    planned_at = models.DateTimeField()
    verified_at = models.DateTimeField(null=True)
    pruned_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"events {self.low} to {self.high}"


class LakeWrite(models.Model):
    """A write of Spark's that was committed: the same write id and batch never enqueue anything again."""

    write_id = models.CharField(max_length=200)
    batch = models.BigIntegerField(default=-1)
    committed_at = models.DateTimeField()
    staged = models.BigIntegerField()
    enqueued = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["write_id", "batch"], name="leasequeue_lakewrite_once")]

    def __str__(self) -> str:
        return f"{self.write_id}/{self.batch}"


class LakeStage(models.Model):
    """Jobs on their way from Spark's tasks: each task copies its part here, the driver's commit moves the parts.

    An unlogged table: a crash of the server empties it, and the commit notices (it counts).
    """

    part = models.UUIDField()
    staged_at = models.DateTimeField(db_default=Now())
    queue = models.TextField()
    key = models.TextField(null=True, db_collation="C")
    name = models.TextField(null=True)
    tag = models.TextField(null=True)
    priority = models.IntegerField(null=True)
    data = PlainJSONField(null=True)
    body = models.BinaryField(null=True)
    meta = PlainJSONField(null=True)
    run_at = models.DateTimeField(null=True)
    ttl_ms = models.BigIntegerField(null=True)
    result_ttl_ms = models.BigIntegerField(null=True)
    max_deliveries = models.IntegerField(null=True)
    reply_to = models.TextField(null=True)
    source_seq = models.BigIntegerField(null=True)

    class Meta:
        indexes = [models.Index(fields=["part"], name="leasequeue_lakestage_part")]

    def __str__(self) -> str:
        return f"part {self.part}"


class LakeFigure(models.Model):
    """One hour of one queue as the pipeline last computed it: what the admin shows without Spark."""

    project = models.CharField(max_length=256, default="", blank=True)
    queue = models.CharField(max_length=255)
    hour = models.DateTimeField()
    figures = models.JSONField()
    computed_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "queue", "hour"], name="leasequeue_lakefigure_hour")]

    def __str__(self) -> str:
        return f"{self.queue} at {self.hour:%Y-%m-%d %H:00}"

"""StoredJob: what was enqueued, written once. Where it stands is said by the narrow table that holds its number."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q

from .fields import PlainJSONField
from .guard import Guard
from .queue import Queue

#: What enqueue wrote stays: another payload is another job (the edit of a dead letter makes one).
FROZEN = ("seq", "queue_id", "rank", "name", "tag", "data", "meta", "body", "origin", "created_at")

#: Each statement of ours that deletes jobs marks itself; the mark is worth nothing to a later one of the same
#: transaction. One look for a statement, none for a row.
_BY_HAND = "current_setting('leasequeue.removes', true) IS DISTINCT FROM statement_timestamp()::text"


def _changed() -> str:
    cast = {"data": "::text", "meta": "::text"}
    old, new = (", ".join(f"{row}.{column}{cast.get(column, '')}" for column in FROZEN) for row in ("OLD", "NEW"))
    return f"ROW({old}) IS DISTINCT FROM ROW({new})"


class StoredJob(models.Model):
    """A job of a queue, or a record of a log, as it was enqueued.

    Its number stands in exactly one place: Ready, Delayed, Claim (leased), DeadLetter (dead in place), Record (of a
    log) or JobResult (finished and remembered). The row is not updated while all goes well. There is no foreign key in
    the database: its check would cost one extra query per row on every enqueue.
    """

    seq = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    created_at = models.DateTimeField()
    #: End of the message's TTL, as enqueued; a claim may protect the job for longer.
    expires_at = models.DateTimeField(null=True)
    result_ttl_ms = models.BigIntegerField(null=True)
    source_queue = models.BigIntegerField(null=True)
    source_seq = models.BigIntegerField(null=True)
    #: Set where the job was moved to another place of its order (the back); else its place is its number.
    position = models.BigIntegerField(null=True)
    #: Set when a job is given back: the first of its claims.
    first_claimed_at = models.DateTimeField(null=True)
    max_deliveries = models.IntegerField(null=True)
    rank = models.SmallIntegerField(default=0)
    #: ``key`` was made of ``seq`` and a random end: it leads to its job without an index.
    generated = models.BooleanField(default=False, db_default=False)
    key = models.TextField(null=True, db_collation="C")
    name = models.TextField(null=True)
    tag = models.TextField(null=True, db_collation="C")
    origin = models.TextField(null=True)
    reply_to = models.TextField(null=True)
    data = PlainJSONField(null=True)
    meta = PlainJSONField(null=True)
    body = models.BinaryField(null=True)
    progress = PlainJSONField(null=True)

    class Meta:
        db_table = "leasequeue_job"
        default_permissions = ()
        constraints = [
            # The client's job id; key first, so that a result id alone finds its job.
            models.UniqueConstraint(
                fields=["key", "queue"], name="leasequeue_job_key", condition=Q(key__isnull=False, generated=False)
            ),
        ]
        triggers = [
            Guard(
                name="written_once",
                when=pgtrigger.Before,
                operation=pgtrigger.UpdateOf(*FROZEN),
                condition=pgtrigger.Condition(_changed()),
                constraint="leasequeue_job_written_once",
                message="what was enqueued is not changed: cancel the job and enqueue another, or edit its dead letter",
            ),
            Guard(
                name="removed_by_engine",
                level=pgtrigger.Statement,
                when=pgtrigger.After,
                operation=pgtrigger.Delete,
                condition=pgtrigger.Condition(_BY_HAND),
                constraint="leasequeue_job_removed_by_engine",
                message=(
                    "a job whose row is deleted is lost: Job.objects.filter(...) has cancel() and discard(),"
                    " a queue purge()"
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"job {self.seq}"


class LiveJob(models.Model):
    """A job with its place beside it: a view for pages and checks, one row a job that has not ended."""

    seq = models.BigIntegerField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+")
    state = models.SmallIntegerField()
    lane = models.SmallIntegerField(null=True)
    position = models.BigIntegerField()
    ready_at = models.DateTimeField(null=True)
    available_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    deliveries = models.IntegerField()
    claim = models.BigIntegerField(null=True)
    node = models.TextField(null=True)
    deadline = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    first_claimed_at = models.DateTimeField(null=True)
    dead_at = models.DateTimeField(null=True)
    error_type = models.TextField(null=True)
    error = models.TextField(null=True)
    fingerprint = models.TextField(null=True)
    created_at = models.DateTimeField()
    result_ttl_ms = models.BigIntegerField(null=True)
    source_queue = models.BigIntegerField(null=True)
    source_seq = models.BigIntegerField(null=True)
    max_deliveries = models.IntegerField(null=True)
    rank = models.SmallIntegerField()
    key = models.TextField(null=True)
    name = models.TextField(null=True)
    tag = models.TextField(null=True)
    origin = models.TextField(null=True)
    reply_to = models.TextField(null=True)
    data = PlainJSONField(null=True)
    meta = PlainJSONField(null=True)
    body = models.BinaryField(null=True)
    progress = PlainJSONField(null=True)

    class Meta:
        managed = False
        db_table = "leasequeue_livejob"
        default_permissions = ()

    def __str__(self) -> str:
        return f"job {self.seq}"

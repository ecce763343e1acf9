"""StoredJob, what was enqueued; Ready, Delayed, Record and Claim, of which one holds its number; claims that wait."""

from __future__ import annotations

from datetime import UTC, datetime

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from ..enums import Lane
from .base import Guard, LocalTrigger, PlainJSONField, ReadOnlyModel, SameNumber
from .queue import Queue

#: What enqueue wrote stays: another payload is another job (the edit of a dead letter makes one).
FROZEN = ("seq", "queue_id", "rank", "name", "tag", "data", "meta", "body", "origin", "created_at")

#: From this time on stand the jobs of which others before them in their workflow failed or were cancelled.
CUT_OFF = datetime(9001, 1, 1, tzinfo=UTC)

#: Each statement of ours that deletes jobs marks itself; the mark is worth nothing to a later one of the same
#: transaction. One look for a statement, none for a row.
_BY_HAND = "current_setting('leasequeue.removes', true) IS DISTINCT FROM statement_timestamp()::text"


def _changed() -> str:
    cast = {"data": "::text", "meta": "::text"}
    old, new = (", ".join(f"{row}.{column}{cast.get(column, '')}" for column in FROZEN) for row in ("OLD", "NEW"))
    return f"ROW({old}) IS DISTINCT FROM ROW({new})"


_INSTEAD = {
    "create": "Queue(name).enqueue()",
    "update": "Job.objects.filter(...) with run_now(), release() or retry()",
    "delete": "Job.objects.filter(...) with cancel() or discard()",
}


class _Enqueued(ReadOnlyModel):
    """Columns that a job and its view have."""

    instead = _INSTEAD
    says = "job {0.seq}"

    created_at = models.DateTimeField()
    #: End of the message's TTL, as enqueued; a claim may protect the job for longer.
    expires_at = models.DateTimeField(null=True)
    result_ttl_ms = models.BigIntegerField(null=True)
    source_queue = models.BigIntegerField(null=True)
    source_seq = models.BigIntegerField(null=True)
    #: Set when a job is given back: the first of its claims.
    first_claimed_at = models.DateTimeField(null=True)
    max_deliveries = models.IntegerField(null=True)
    rank = models.SmallIntegerField(default=0)
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
        abstract = True


class StoredJob(_Enqueued):
    """A job of a queue, or a record of a log, as it was enqueued.

    Its number stands in exactly one place: Ready, Delayed, Claim (leased), DeadLetter (dead in place), Record (of a
    log) or JobResult (finished and remembered). The row is not updated while all goes well. There is no foreign key in
    the database: its check would cost one extra query per row on every enqueue.
    """

    seq = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    #: Set where the job was moved to another place of its order (the back); else its place is its number.
    position = models.BigIntegerField(null=True)
    #: ``key`` was made of ``seq`` and a random end: it leads to its job without an index.
    generated = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "leasequeue_job"
        default_permissions = ()
        constraints = [
            # The client's job id; key first, so that a result id alone finds its job.
            models.UniqueConstraint(
                fields=["key", "queue"], name="leasequeue_job_key", condition=Q(key__isnull=False, generated=False)
            )
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
                message="a job whose row is deleted is lost: Job.objects.filter(...) has cancel() and discard(),"
                " a queue purge()",
            ),
        ]


class LiveJob(_Enqueued):
    """A job with its place beside it: a view for pages and checks, one row a job that has not ended."""

    seq = models.BigIntegerField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+")
    state = models.SmallIntegerField()
    lane = models.SmallIntegerField(null=True)
    position = models.BigIntegerField()
    ready_at = models.DateTimeField(null=True)
    available_at = models.DateTimeField(null=True)
    deliveries = models.IntegerField()
    claim = models.BigIntegerField(null=True)
    node = models.TextField(null=True)
    deadline = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    dead_at = models.DateTimeField(null=True)
    error_type = models.TextField(null=True)
    error = models.TextField(null=True)
    fingerprint = models.TextField(null=True)

    class Meta:
        managed = False
        db_table = "leasequeue_livejob"
        default_permissions = ()


class LargeObject(ReadOnlyModel):
    """An object in a storage: noted before it is uploaded, forgotten after it is removed there.

    ``seq`` is the job that it belongs to; null: it was noted, and no transaction has given it to a job yet; 0: it is
    being removed, and cannot be given to a job any more. The job itself holds the reference that readers follow.
    """

    says = "object {0.name}"

    id = models.BigAutoField(primary_key=True)
    seq = models.BigIntegerField(null=True)
    created_at = models.DateTimeField()
    size = models.BigIntegerField()
    #: Alias of Django's STORAGES.
    storage = models.TextField()
    name = models.TextField()

    class Meta:
        default_permissions = ()
        # Those of a job that moves; those of no job, the oldest first; those that are being removed. An expression,
        # so that no plan made on an empty table looks for an id in it.
        indexes = [models.Index("seq", models.F("id") + 0, name="leasequeue_largeobject_seq")]


class Ready(ReadOnlyModel):
    """A job that a claim may take: it is ready if and only if it has a row here.

    Claim order is (rank, position). The fresh lane holds jobs whose positions only rise, so that a floor can keep
    claims from walking over dead index entries; the other one holds those that came back to an old place. A claim
    merges both.
    """

    instead = _INSTEAD
    says = "ready job {0.seq}"

    pk = models.CompositePrimaryKey("queue", "rank", "lane", "position")
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    position = models.BigIntegerField()
    seq = models.BigIntegerField()
    ready_at = models.DateTimeField()
    deliveries = models.IntegerField(default=0)
    rank = models.SmallIntegerField()
    lane = models.SmallIntegerField(choices=Lane.choices)
    #: What an ack or nack of the job has to look at: see ``enums.JobFlag``.
    flags = models.SmallIntegerField(default=0)
    max_deliveries = models.IntegerField(null=True)
    expires_at = models.DateTimeField(null=True)
    tag = models.TextField(null=True, db_collation="C")

    class Meta:
        indexes = [
            # Claim by tag, in claim order within one tag.
            models.Index(
                fields=["queue", "tag", "rank", "position"], name="leasequeue_ready_tag", condition=Q(tag__isnull=False)
            ),
            # Messages past their TTL, oldest first.
            models.Index(
                fields=["queue", "expires_at"], name="leasequeue_ready_expires", condition=Q(expires_at__isnull=False)
            ),
            # Jobs that were moved to the back: readers by number find them out of their place.
            models.Index(fields=["queue", "seq"], name="leasequeue_ready_moved", condition=~Q(position=F("seq"))),
        ]


class Delayed(ReadOnlyModel):
    """A job that is not due yet."""

    instead = _INSTEAD
    says = "delayed job {0.seq}"

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
            # Jobs that others before them in their workflow cut off: few, and shown with what ended.
            models.Index(fields=["seq"], name="leasequeue_delayed_cut_off", condition=Q(available_at__gte=CUT_OFF)),
        ]


class Record(ReadOnlyModel):
    """An entry of a log topic: read in order of its number, never leased."""

    instead = {"create": "Queue(name).enqueue()", "delete": "Queue(name).purge()"}
    says = "record {0.seq}"

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


#: What jobs held that a claim does not hold any more is handed over in the transaction that took them out, and a
#: claimer is woken.
_NOTE_LEFT = """
    PERFORM leasequeue_left(OLD.queue_id, OLD.flags,
        ARRAY(SELECT unnest(OLD.seqs) EXCEPT SELECT unnest(NEW.seqs)));
    RETURN NULL;
"""


class Claim(ReadOnlyModel):
    """The jobs of one claim call that are not settled yet: a job is leased if and only if its number is in ``seqs``.

    ``token`` fences late workers: no two claims have the same, also across a crash of the server. Extending some of a
    claim's jobs to another deadline splits the row: the parts have the same token.
    """

    instead = {
        "create": "Queue(name).claim()",
        "update": "Queue(name).extend(job)",
        "delete": "Job.objects.leased().release()",
    }
    says = "claim {0.token}"

    pk = models.CompositePrimaryKey("token", "part")
    token = models.BigIntegerField()
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    deadline = models.DateTimeField()
    created_at = models.DateTimeField()
    ttl_ms = models.BigIntegerField()
    grace_ms = models.BigIntegerField(default=0)
    part = models.SmallIntegerField(default=0)
    #: The flags of its jobs, together, and ``JobFlag.MIXED`` where they do not all have ``name``.
    flags = models.SmallIntegerField(default=0)
    node = models.TextField()
    name = models.TextField(null=True)
    connection = models.TextField(null=True)
    seqs = ArrayField(models.BigIntegerField())
    #: Times claimed, in the order of ``seqs``; null: once each.
    deliveries = ArrayField(models.IntegerField(), null=True)

    worker = SameNumber("leasequeue.Worker", here="node", there="node", related_name="leases")

    class Meta:
        indexes = [
            models.Index(fields=["queue", "deadline"], name="leasequeue_claim_deadline"),
            # What a node holds: settle calls without a token.
            models.Index(fields=["node"], name="leasequeue_claim_node"),
        ]
        triggers = [
            # The condition is evaluated without a function call: other claims pay next to nothing.
            LocalTrigger(
                name="flow",
                when=pgtrigger.After,
                operation=pgtrigger.UpdateOf("seqs") | pgtrigger.Delete,
                condition=pgtrigger.Condition("OLD.flags & 384 <> 0"),
                func=_NOTE_LEFT,
            )
        ]


class ClaimWaiter(ReadOnlyModel):
    """One claimer of a coalescing window, in whatever server process it waits.

    The table is unlogged: its rows live for one window, and a crash only makes the claimers ask again.
    """

    says = "claim waiter {0.pk}"

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    node = models.TextField()
    size = models.IntegerField()
    lease_ms = models.BigIntegerField(null=True)
    connection = models.TextField(null=True)
    joined_at = models.DateTimeField()
    closes_at = models.DateTimeField()
    dealt_at = models.DateTimeField(null=True)
    #: The claim that it was dealt; null when nothing was left.
    claim = models.BigIntegerField(null=True)

    class Meta:
        indexes = [
            # The cohort of a queue, in order of arrival.
            models.Index(fields=["queue", "id"], name="leasequeue_waiter_open", condition=Q(dealt_at__isnull=True))
        ]

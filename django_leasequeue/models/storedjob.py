"""StoredJob; Ready, Delayed, Record and Claim, one of which holds its number; waiting claims."""

from __future__ import annotations

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from ..enums import JobFlag, Lane
from ..words import CUT_OFF
from .base import Guard, LocalTrigger, PlainJSONField, ReadOnlyModel, SameNumber
from .queue import Queue

#: Columns that never change: another payload is another job (the edit of a dead letter makes one).
FROZEN = ("seq", "queue_id", "rank", "name", "tag", "data", "meta", "body", "origin", "created_at")

#: Our statements that delete jobs set a mark, valid for one statement; the trigger checks it once for each statement.
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
    """The common columns of a job and its view."""

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

    Exactly one table has its number: Ready, Delayed, Claim (leased), DeadLetter (dead in place), Record (of a log) or
    JobResult (finished and kept). Without failures the row is never updated. There is no foreign key: its check would
    cost a query per row on every enqueue.
    """

    seq = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    #: Set if the job was moved in the order (to the back); else its position is its number.
    position = models.BigIntegerField(null=True)
    #: ``key`` is made of ``seq`` and a random suffix: it finds its job without an index.
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
    """A live job with its state, a view for pages and checks."""

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
    """An object in a storage: its row exists from before the upload until after the removal there.

    ``seq`` is its job; null: no transaction has given it to a job yet; 0: it is being removed, and no job can take it.
    The job itself holds the reference for readers.
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
    """A ready job: a job is ready if and only if it has a row here.

    Claim order is (rank, position). Positions of the fresh lane only rise, so a floor lets claims skip dead index
    entries; the other lane has jobs that returned to an old position. A claim merges both.
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
    #: See ``words.JobFlag``.
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
            # Jobs that workers gave back unstarted: those of a task that is resumed become due.
            models.Index(
                fields=["seq"], name="leasequeue_delayed_put_off", condition=Q(flags__gte=int(JobFlag.PUT_OFF))
            ),
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


#: Jobs that a claim does not hold any more leave a turn in the transaction that took them out, and a claimer is woken.
_NOTE_LEFT = """
    PERFORM leasequeue_leave_turns(OLD.queue_id, OLD.flags,
        ARRAY(SELECT unnest(OLD.seqs) EXCEPT SELECT unnest(NEW.seqs)));
    RETURN NULL;
"""


class Claim(ReadOnlyModel):
    """The unsettled jobs of one claim call: a job is leased if and only if its number is in ``seqs``.

    ``token`` fences late workers: it is unique, also across a crash of the server. To extend only some jobs splits the
    row: the parts have the same token.
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
    part = models.BigIntegerField(default=0)
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
                condition=pgtrigger.Condition(f"OLD.flags & {int(JobFlag.FLOW | JobFlag.RATED)} <> 0"),
                func=_NOTE_LEFT,
            )
        ]


class ClaimWaiter(ReadOnlyModel):
    """One claimer of a coalescing window, of any server process.

    The table is unlogged: its rows live for one window, and after a crash the claimers ask again.
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
    #: Its claim; null if no job was left.
    claim = models.BigIntegerField(null=True)

    class Meta:
        indexes = [
            # The cohort of a queue, in order of arrival.
            models.Index(fields=["queue", "id"], name="leasequeue_waiter_open", condition=Q(dealt_at__isnull=True))
        ]

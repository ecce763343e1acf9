"""The history of jobs: results, dead letters, failed attempts, and the append-only lease log."""

from __future__ import annotations

from typing import Any

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import F, Q, lookups
from django.db.models.expressions import Col
from django.db.models.fields.related_lookups import RelatedExact, RelatedIn

from ..enums import EventKind, ResultState
from .base import Guard, PlainJSONField, ReadOnlyModel, SameNumber
from .queue import Queue


class JobResult(ReadOnlyModel):
    """The outcome of a job, kept with its StoredJob until ``expires_at``."""

    instead = {
        "create": "Queue(name).ack(job, result)",
        "update": "Queue(name).ack(job, result)",
        "delete": "the queue's result_ttl_ms, after which it goes",
    }
    says = "result of job {0.seq}"

    seq = models.BigIntegerField(primary_key=True)
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="results"
    )
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


class DeadLetter(ReadOnlyModel):
    """A dead letter: in its own queue, or moved to a dead-letter topic (as a record or a job there)."""

    instead = {
        "create": "Queue(name).nack(job, error)",
        "update": "Job.objects.dead().retry() or .redrive(queue)",
        "delete": "Job.objects.dead().discard(reason)",
    }
    says = "dead letter {0.seq}"

    seq = models.BigIntegerField(primary_key=True)
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="dead_letters"
    )
    dead_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    deliveries = models.IntegerField(default=0)
    #: Dead in its own queue: this row holds it.
    in_place = models.BooleanField(default=True)
    error_type = models.TextField(null=True)
    error = models.TextField(null=True)
    #: Empty where the failure has none: never null, so that one range of the index holds a group.
    fingerprint = models.TextField(default="", db_collation="C")

    job = SameNumber("leasequeue.Job")

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


class Attempt(ReadOnlyModel):
    """A failed delivery, also by an expired lease. The newest 20 of a job are kept."""

    instead = {
        "create": "Queue(name).nack(job, error)",
        "update": "Queue(name).nack(job, error)",
        "delete": "Job.objects.filter(...).discard(reason): attempts go with their job",
    }
    says = "attempt {0.delivery} of job {0.seq}"

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

    class Meta:
        indexes = [models.Index(fields=["seq", "id"], name="leasequeue_attempt_job")]


class _Logged(ReadOnlyModel):
    """Columns that both models of the lease log have."""

    instead = {
        "create": "the calls that change jobs, which write what they did",
        "update": "another event: the log is append-only",
        "delete": "the setting EVENT_RETENTION_DAYS",
    }
    says = "event {0.id}"

    txid = models.BigIntegerField()
    occurred_at = models.DateTimeField()
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    claim = models.BigIntegerField(null=True)
    deadline = models.DateTimeField(null=True)
    kind = models.SmallIntegerField(choices=EventKind.choices)
    node = models.TextField(null=True)
    name = models.TextField(null=True)
    #: More that the jobs of a row share (the cause of a failure, the target queue).
    detail = models.JSONField(null=True)

    class Meta:
        abstract = True


class LeaseEvent(_Logged):
    """The change of one statement to at most 1,000 jobs of one queue and task name, written by that statement.

    The table is partitioned by ranges of ``id``; the reaper makes partitions ahead and drops old ones. ``txid`` is the
    writing transaction: readers order by ``(txid, id)``. JobEvent shows the log job by job.
    """

    id = models.BigAutoField(primary_key=True)
    #: The lowest and the highest number in ``seqs``.
    low = models.BigIntegerField()
    high = models.BigIntegerField()
    seqs = ArrayField(models.BigIntegerField())
    #: Times claimed, in the order of ``seqs``; null: once each (enqueued, redriven: not at all).
    deliveries = ArrayField(models.IntegerField(), null=True)
    #: Of claims: milliseconds since the job was ready, in the order of ``seqs``.
    waited = ArrayField(models.IntegerField(), null=True)
    #: Of outcomes and releases: milliseconds that the handler ran, if the worker reported them.
    ran = ArrayField(models.IntegerField(null=True), null=True)

    class Meta:
        indexes = [
            BrinIndex(fields=["txid"], name="leasequeue_event_txid", pages_per_range=8),
            BrinIndex(fields=["occurred_at"], name="leasequeue_event_occurred", pages_per_range=8),
            BrinIndex(fields=["low", "high"], name="leasequeue_event_seqs", pages_per_range=8),
        ]
        triggers = [
            Guard(
                name="append_only",
                when=pgtrigger.Before,
                operation=pgtrigger.Update | pgtrigger.Delete,
                constraint="leasequeue_event_append_only",
                message="the lease log is append-only; retention drops partitions, and maintenance passes with"
                ' pgtrigger.ignore("leasequeue.LeaseEvent:append_only")',
            )
        ]


#: Of the row of the log that holds an event: columns of the view that are no fields.
_BOUNDS = (models.BigIntegerField(db_column="low"), models.BigIntegerField(db_column="high"))
for _bound in _BOUNDS:
    _bound.set_attributes_from_name(_bound.db_column or "")


class _WithinRow:
    """A lookup of a job that also bounds the log's row, for its index."""

    def as_sql(self: Any, compiler: Any, connection: Any) -> tuple[str, Any]:
        sql, params = super().as_sql(compiler, connection)  # type: ignore[misc]
        values = self.rhs if isinstance(self.rhs, (list, tuple, set)) else [self.rhs]
        if not self.rhs_is_direct_value() or not values or None in values or not hasattr(self.lhs, "alias"):
            return sql, params
        low, high = (compiler.compile(Col(self.lhs.alias, column))[0] for column in _BOUNDS)
        numbers = [int(value) for value in values]
        return f"({sql} AND {low} <= %s AND {high} >= %s)", [*params, max(numbers), min(numbers)]


class EventJobNumber(models.BigIntegerField):
    """The number of an event's job."""


class EventJob(SameNumber):
    """The job of an event."""


for _field, _lookups in (
    (EventJobNumber, (lookups.IntegerFieldExact, lookups.In)),
    (EventJob, (RelatedExact, RelatedIn)),
):
    for _lookup in _lookups:
        _field.register_lookup(type(_lookup.__name__, (_WithinRow, _lookup), {}))


class JobEvent(_Logged):
    """The lease log job by job, a view. ``id`` is the row's id times 1,024, plus the job's index in it."""

    id = models.BigIntegerField(primary_key=True)
    event = models.BigIntegerField()
    seq = EventJobNumber()
    deliveries = models.IntegerField(null=True)
    waited = models.IntegerField(null=True)
    ran = models.IntegerField(null=True)

    job = EventJob("leasequeue.Job", related_name="events")

    class Meta:
        managed = False
        db_table = "leasequeue_jobevent"
        default_permissions = ()

"""LeaseEvent: the append-only log of everything that happened to leases."""

from __future__ import annotations

from typing import Any

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import lookups
from django.db.models.expressions import Col
from django.db.models.fields.related_lookups import RelatedExact, RelatedIn

from ..enums import EventKind
from .guard import Guard
from .queue import Queue
from .read_only import ReadOnlyManager, ReadOnlyModel
from .relations import SameNumber


class LeaseEvent(models.Model):
    """One statement's change to jobs of one queue and task name, written by that statement; at most 1,000 jobs a row.

    The table is partitioned by range of ``id``; the reaper makes partitions ahead and drops old ones.
    ``txid`` is the writing transaction: readers order by ``(txid, id)``. JobEvent shows the log job by job.
    """

    id = models.BigAutoField(primary_key=True)
    txid = models.BigIntegerField()
    occurred_at = models.DateTimeField()
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    claim = models.BigIntegerField(null=True)
    deadline = models.DateTimeField(null=True)
    #: The lowest and the highest number in ``seqs``.
    low = models.BigIntegerField()
    high = models.BigIntegerField()
    kind = models.SmallIntegerField(choices=EventKind.choices)
    node = models.TextField(null=True)
    name = models.TextField(null=True)
    seqs = ArrayField(models.BigIntegerField())
    #: Times claimed, in the order of ``seqs``; null: once each (enqueued, redriven: not at all).
    deliveries = ArrayField(models.IntegerField(), null=True)
    #: Of claims: milliseconds since the job was ready, in the order of ``seqs``.
    waited = ArrayField(models.IntegerField(), null=True)
    #: Of endings and releases: milliseconds that the handler ran, where the worker said so.
    ran = ArrayField(models.IntegerField(null=True), null=True)
    #: What these jobs have in common beyond that (the cause of a failure, where they went).
    detail = models.JSONField(null=True)

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
            ),
        ]

    def __str__(self) -> str:
        return f"event {self.id}"


#: Of the row of the log that holds an event: columns of the view that are no fields.
_BOUNDS = (models.BigIntegerField(db_column="low"), models.BigIntegerField(db_column="high"))
for _bound in _BOUNDS:
    _bound.set_attributes_from_name(_bound.db_column or "")


class _WithinRow:
    """Says of the row of the log, which has an index on that, what is asked of one of its jobs."""

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


class JobEvent(ReadOnlyModel):
    """The lease log job by job: a view. ``id`` is that of the row times 1,024, and the job's place in it."""

    id = models.BigIntegerField(primary_key=True)
    event = models.BigIntegerField()
    txid = models.BigIntegerField()
    occurred_at = models.DateTimeField()
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+")
    seq = EventJobNumber()
    claim = models.BigIntegerField(null=True)
    deadline = models.DateTimeField(null=True)
    deliveries = models.IntegerField(null=True)
    waited = models.IntegerField(null=True)
    ran = models.IntegerField(null=True)
    kind = models.SmallIntegerField(choices=EventKind.choices)
    node = models.TextField(null=True)
    name = models.TextField(null=True)
    detail = models.JSONField(null=True)

    job = EventJob("leasequeue.Job", related_name="events")

    objects = ReadOnlyManager["JobEvent"]()

    class Meta:
        managed = False
        db_table = "leasequeue_jobevent"
        default_permissions = ()

    def __str__(self) -> str:
        return f"event {self.id}"

"""Queues and logs with their options, and their tables: state, floors, ranks, samples, taken keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, ClassVar

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import IntegrityError, NotSupportedError, models, router, transaction
from django.db.models import Q

from ..conf.queue_options import OPTIONS
from ..enums import (
    Backoff,
    DedupUntil,
    Discard,
    Durability,
    ExhaustAt,
    FloorKind,
    LateAck,
    PriorityOrder,
    QueueType,
    Requeue,
)
from ..exceptions import InvalidOption
from .base import Guard, ReadOnlyModel


class QueueQuerySet(models.QuerySet["Queue"]):
    """Queues. Writes go through the engine, which checks options and removes everything of a deleted queue."""

    #: ``django_leasequeue.engine.model_writes``: models know nothing of the engine, so the app gives it to them.
    engine: ClassVar[Any] = None

    def bulk_create(  # type: ignore[override]  # a queryset of queues makes queues
        self,
        objs: Iterable[Queue],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,
        update_conflicts: bool = False,
        update_fields: Collection[str] | None = None,
        unique_fields: Collection[str] | None = None,
    ) -> list[Queue]:
        """Make queues, all or none."""
        if ignore_conflicts or update_conflicts:
            raise NotSupportedError("Queues are made one by one: use get_or_create or update_or_create.")
        made = list(objs)
        with transaction.atomic(using=self.db):
            for queue in made:
                queue.save(force_insert=True, using=self.db)
        return made

    def update(self, **values: Any) -> int:
        """Change options of all these queues; ``InvalidOption``: a value is invalid, or a queue's others bar it."""
        try:
            return super().update(**self.engine.checked(values))
        except IntegrityError as error:
            raise InvalidOption(f"a queue cannot have these options: {str(error).splitlines()[0]}") from error

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete the queues with their jobs, claims and results; their events stay."""
        gone = sum(queue.delete(using=self.db)[0] for queue in self)
        return gone, {"leasequeue.Queue": gone}


class Queue(models.Model):
    """A topic of type queue or log, owned by a project (tenant); see docs/reference/queue-options.md for options.

    ``create``, ``save``, ``update`` and ``delete`` go through the engine.
    """

    project = models.CharField(max_length=256, default="", blank=True)
    name = models.CharField(max_length=255)
    type = models.CharField(max_length=8, choices=QueueType.choices, default=OPTIONS["type"].default)

    requeue = models.CharField(max_length=8, choices=Requeue.choices, default=OPTIONS["requeue"].default)
    priority_order = models.CharField(
        max_length=4, choices=PriorityOrder.choices, default=OPTIONS["priority_order"].default
    )
    priority_min = models.SmallIntegerField(default=OPTIONS["priority_min"].default)
    priority_max = models.SmallIntegerField(default=OPTIONS["priority_max"].default)
    lease_ms = models.IntegerField(default=OPTIONS["lease_ms"].default)
    late_ack = models.CharField(max_length=6, choices=LateAck.choices, default=OPTIONS["late_ack"].default)
    leases_durable = models.BooleanField(default=OPTIONS["leases_durable"].default)
    claim_jitter_ms = models.IntegerField(default=OPTIONS["claim_jitter_ms"].default)
    # ``db_default``: during a deploy the previous release makes queues without it.
    concurrency = models.IntegerField(default=OPTIONS["concurrency"].default, db_default=0)

    max_deliveries = models.IntegerField(default=OPTIONS["max_deliveries"].default)
    exhaust_at = models.CharField(max_length=7, choices=ExhaustAt.choices, default=OPTIONS["exhaust_at"].default)
    dead_letter = models.CharField(max_length=255, null=True, blank=True)
    dead_ttl_ms = models.BigIntegerField(default=OPTIONS["dead_ttl_ms"].default)
    backoff = models.CharField(max_length=16, choices=Backoff.choices, default=OPTIONS["backoff"].default)
    backoff_base_ms = models.IntegerField(default=OPTIONS["backoff_base_ms"].default)
    backoff_max_ms = models.IntegerField(default=OPTIONS["backoff_max_ms"].default)

    result_ttl_ms = models.BigIntegerField(default=OPTIONS["result_ttl_ms"].default)
    dedup_until = models.CharField(max_length=10, choices=DedupUntil.choices, default=OPTIONS["dedup_until"].default)
    ttl_ms = models.BigIntegerField(default=OPTIONS["ttl_ms"].default)
    cap_records = models.BigIntegerField(default=OPTIONS["cap_records"].default)
    cap_bytes = models.BigIntegerField(default=OPTIONS["cap_bytes"].default)
    discard = models.CharField(max_length=6, choices=Discard.choices, default=OPTIONS["discard"].default)
    durability = models.CharField(max_length=9, choices=Durability.choices, default=OPTIONS["durability"].default)
    idempotency_window_ms = models.IntegerField(default=OPTIONS["idempotency_window_ms"].default)
    log_enqueued = models.BooleanField(default=OPTIONS["log_enqueued"].default)
    serializer = models.CharField(max_length=64, default=OPTIONS["serializer"].default)
    metadata = models.JSONField(default=dict, blank=True)

    dead_lettered = models.BigIntegerField(default=0, editable=False)
    #: Floors that were lowered because they stood above a waiting job.
    floors_mended = models.BigIntegerField(default=0, db_default=0, editable=False)
    #: A task was enqueued here: workers without the option ``queues`` take it.
    holds_tasks = models.BooleanField(default=False, db_default=False, editable=False)
    paused_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = models.Manager.from_queryset(QueueQuerySet)()

    class Meta:
        permissions = [
            ("pause_queue", "Can pause and resume queues"),
            ("purge_queue", "Can remove all jobs of a queue"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="leasequeue_queue_name"),
            models.CheckConstraint(condition=Q(lease_ms__range=(100, 86_400_000)), name="leasequeue_queue_lease_ms"),
            models.CheckConstraint(
                condition=Q(priority_min__lte=models.F("priority_max")) & Q(priority_min__gt=-32768),
                name="leasequeue_queue_priority_range",
            ),
            models.CheckConstraint(
                condition=Q(max_deliveries__gte=0)
                & Q(claim_jitter_ms__range=(0, 5_000))
                & Q(result_ttl_ms__gte=0)
                & Q(ttl_ms__gte=0)
                & Q(dead_ttl_ms__gte=0)
                & Q(cap_records__gte=0)
                & Q(cap_bytes__gte=0)
                & Q(backoff_base_ms__gte=0)
                & Q(backoff_max_ms__gte=0)
                & Q(idempotency_window_ms__gte=0),
                name="leasequeue_queue_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(concurrency__range=(0, 10_000)) & (Q(concurrency=0) | Q(claim_jitter_ms=0)),
                name="leasequeue_queue_concurrency",
            ),
            models.CheckConstraint(
                condition=Q(dead_letter__isnull=True) | ~Q(dead_letter=models.F("name")),
                name="leasequeue_queue_dead_letter_other",
            ),
        ]
        triggers = [
            Guard(
                name="type_immutable",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.Condition("OLD.type IS DISTINCT FROM NEW.type"),
                constraint="leasequeue_queue_type_immutable",
                message="the type of a queue cannot change: delete the queue and create it anew",
            )
        ]

    def __str__(self) -> str:
        return f"{self.project}/{self.name}" if self.project else self.name

    def _save_table(
        self,
        raw: bool = False,
        cls: Any = None,
        force_insert: bool = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> bool:
        """Write through the engine, also for ``loaddata``, which does not call ``save``."""
        engine = QueueQuerySet.engine
        return bool(engine.save(self, using, new=force_insert, there=force_update, fields=update_fields, loaded=raw))

    def delete(self, using: str | None = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        """Delete the queue with its jobs, claims and results; its events stay."""
        gone = int(QueueQuerySet.engine.delete(self, using or router.db_for_write(type(self), instance=self)))
        return gone, {"leasequeue.Queue": gone}


class TopicState(ReadOnlyModel):
    """One row per topic, made with it.

    Written only when records are removed, never when they are added: a row that every enqueue updates would make all
    producers of a queue wait for each other.
    """

    says = "state of topic {0.queue_id}"

    queue = models.OneToOneField(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, primary_key=True, related_name="+"
    )
    #: The highest number that was ever removed; the topic's head is that or the highest live one.
    head_seq = models.BigIntegerField(default=0, db_default=0)
    last_write_at = models.DateTimeField(null=True)
    #: The records that a cap or a TTL has removed, for late readers.
    gap_from = models.BigIntegerField(null=True)
    gap_to = models.BigIntegerField(null=True)
    gap_count = models.BigIntegerField(default=0, db_default=0)
    gap_reason = models.CharField(max_length=8, null=True)
    #: Upper bounds of live records and bytes, for a cap; null: count again.
    records = models.BigIntegerField(null=True)
    bytes = models.BigIntegerField(null=True)


class Route(ReadOnlyModel):
    """A queue that was moved to another database. Only the rows in ``LEASEQUEUE["DATABASE"]`` count."""

    instead = {"create": "manage.py leasequeue_queues move", "update": "manage.py leasequeue_queues move"}
    says = "{0.name}: {0.source} -> {0.alias}"

    project = models.CharField(max_length=256, default="", blank=True)
    name = models.CharField(max_length=255)
    #: Alias of the database that takes new jobs, and of the one that took them before.
    alias = models.CharField(max_length=255)
    source = models.CharField(max_length=255)
    moved_at = models.DateTimeField()
    #: When no job was left at the source; until then leases are claimed and settled there.
    drained_at = models.DateTimeField(null=True)
    #: Transactions at the source that may still add jobs there; ``None`` until every process knows of the move.
    writers = ArrayField(models.TextField(), null=True)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="leasequeue_route_name")]


class Timeline(ReadOnlyModel):
    """One row per timeline of the server, which a promoted standby changes, in each epoch; written by the reaper.

    A row that a standby or a dump has proves that everything up to ``sealed`` and below ``horizon`` reached it as well.
    ``mark`` is the transaction that wrote the row: where the row was written by another, the rows of this database were
    copied, and an epoch begins (``engine/epoch.py``). The upper 32 bits of ``timeline`` are the epoch.
    """

    says = "timeline {0.timeline}"

    timeline = models.BigIntegerField(primary_key=True)
    #: The highest number drawn when it was noted; all of it has ended once transaction ``mark`` is the oldest.
    head = models.BigIntegerField()
    mark = models.BigIntegerField()
    #: Every transaction that drew a number up to this one has ended.
    sealed = models.BigIntegerField()
    #: Every transaction below this one has ended.
    horizon = models.BigIntegerField()
    noted_at = models.DateTimeField()
    #: The identifier of the database system; empty where the role may not see it.
    system = models.TextField(db_default="")


class QueueFloor(ReadOnlyModel):
    """A bound of a queue that only rises: the highest row of a kind and rank counts; lower ones are removed.

    Rows are added, never updated: updates under an old snapshot would grow a chain of row versions for every reader,
    and their lock would delay claims.
    """

    says = "floor of queue {0.queue_id}, kind {0.kind}, rank {0.rank}"

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    value = models.BigIntegerField()
    made_at = models.DateTimeField()
    kind = models.SmallIntegerField(choices=FloorKind.choices)
    rank = models.SmallIntegerField(default=0)

    class Meta:
        # Read from its end, past the entries of removed rows.
        indexes = [models.Index(fields=["queue", "kind", "rank", "value"], name="leasequeue_floor_place")]


class QueueRank(ReadOnlyModel):
    """A rank that jobs of a queue have had. Not unique: two first jobs of a priority do not wait for each other."""

    says = "rank {0.rank} of queue {0.queue_id}"

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    rank = models.SmallIntegerField()

    class Meta:
        indexes = [models.Index(fields=["queue", "rank"], name="leasequeue_rank_place")]


class QueueStat(ReadOnlyModel):
    """One sample of a queue. The newest is what capped counts fall back to; older ones draw the charts."""

    instead = {"delete": "the setting STAT_RETENTION_DAYS"}
    says = "sample of queue {0.queue_id} at {0.sampled_at:%Y-%m-%d %H:%M:%S}"

    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="samples"
    )
    sampled_at = models.DateTimeField()
    ready = models.BigIntegerField()
    delayed = models.BigIntegerField()
    leased = models.BigIntegerField()
    dead = models.BigIntegerField()
    records = models.BigIntegerField(default=0)
    oldest_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "sampled_at"], name="leasequeue_stat_sample")]
        indexes = [models.Index(fields=["sampled_at"], name="leasequeue_stat_age")]


class UniqueKey(ReadOnlyModel):
    """A key that a call with ``unique_until``, ``unique_for`` or ``on_conflict``, or a task with a key, has taken.

    Callers decide about a key under the lock of its row. The state of its job says whether the key is free; the row
    stays until another call takes it, or until its job is gone.
    """

    says = "unique key {0.key}"

    pk = models.CompositePrimaryKey("queue", "key")
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    key = models.TextField(db_collation="C")
    #: The job that took it; 0 where the call found that a job without these options has it.
    seq = models.BigIntegerField(default=0)
    #: The key is free from then on, whatever its job does; null: it goes by its job.
    free_at = models.DateTimeField(null=True)
    #: The key is free when its job starts, not only when that has ended.
    until_start = models.BooleanField(default=False)


class IdempotencyKey(ReadOnlyModel):
    """The numbers that a keyed write of a topic drew, kept for the topic's ``idempotency_window_ms``."""

    says = "idempotency key {0.key}"

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    key = models.TextField(db_collation="C")
    seqs = ArrayField(models.BigIntegerField(), default=list)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        # Keys whose window is over, oldest first.
        indexes = [models.Index(fields=["expires_at"], name="leasequeue_idempotency_expires")]
        constraints = [models.UniqueConstraint(fields=["queue", "key"], name="leasequeue_idempotency_key")]

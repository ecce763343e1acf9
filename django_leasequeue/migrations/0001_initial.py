"""Queues and logs with their options, and their tables: state, floors, ranks, samples, taken keys, routes."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import CheckConstraint, F, Index, Q, UniqueConstraint

from . import guard, queue, table

# Rows that change all the time: room on the page for the next version, and vacuum by count, not by share of the table.
STORAGE = """
ALTER TABLE leasequeue_queuefloor SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
ALTER TABLE leasequeue_uniquekey SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE leasequeue_topicstate SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
ALTER TABLE leasequeue_timeline SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        table(
            "Queue",
            id=models.BigAutoField(primary_key=True),
            project=models.CharField(max_length=256),
            name=models.CharField(max_length=255),
            type=models.CharField(max_length=8),
            requeue=models.CharField(max_length=8),
            priority_order=models.CharField(max_length=4),
            priority_min=models.SmallIntegerField(),
            priority_max=models.SmallIntegerField(),
            lease_ms=models.IntegerField(),
            late_ack=models.CharField(max_length=6),
            leases_durable=models.BooleanField(),
            claim_jitter_ms=models.IntegerField(),
            max_deliveries=models.IntegerField(),
            exhaust_at=models.CharField(max_length=7),
            dead_letter=models.CharField(max_length=255, null=True),
            dead_ttl_ms=models.BigIntegerField(),
            backoff=models.CharField(max_length=16),
            backoff_base_ms=models.IntegerField(),
            backoff_max_ms=models.IntegerField(),
            result_ttl_ms=models.BigIntegerField(),
            dedup_until=models.CharField(max_length=10),
            ttl_ms=models.BigIntegerField(),
            cap_records=models.BigIntegerField(),
            cap_bytes=models.BigIntegerField(),
            discard=models.CharField(max_length=6),
            durability=models.CharField(max_length=9),
            idempotency_window_ms=models.IntegerField(),
            log_enqueued=models.BooleanField(),
            serializer=models.CharField(max_length=64),
            metadata=models.JSONField(),
            dead_lettered=models.BigIntegerField(),
            floors_mended=models.BigIntegerField(db_default=0),
            paused_at=models.DateTimeField(null=True),
            created_at=models.DateTimeField(),
            updated_at=models.DateTimeField(),
            concurrency=models.IntegerField(db_default=0),
            holds_tasks=models.BooleanField(db_default=False),
            permissions=[
                ("pause_queue", "Can pause and resume queues"),
                ("purge_queue", "Can remove all jobs of a queue"),
            ],
            constraints=[
                UniqueConstraint(fields=["project", "name"], name="leasequeue_queue_name"),
                CheckConstraint(condition=Q(lease_ms__range=(100, 86400000)), name="leasequeue_queue_lease_ms"),
                CheckConstraint(
                    condition=Q(priority_min__lte=F("priority_max")) & Q(priority_min__gt=-32768),
                    name="leasequeue_queue_priority_range",
                ),
                CheckConstraint(
                    condition=Q(max_deliveries__gte=0)
                    & Q(claim_jitter_ms__range=(0, 5000))
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
                CheckConstraint(
                    condition=Q(concurrency__range=(0, 10000)) & (Q(concurrency=0) | Q(claim_jitter_ms=0)),
                    name="leasequeue_queue_concurrency",
                ),
                CheckConstraint(
                    condition=Q(dead_letter__isnull=True) | ~Q(dead_letter=F("name")),
                    name="leasequeue_queue_dead_letter_other",
                ),
            ],
        ),
        table(
            "TopicState",
            queue=queue(field=models.OneToOneField, primary_key=True),
            head_seq=models.BigIntegerField(db_default=0),
            last_write_at=models.DateTimeField(null=True),
            gap_from=models.BigIntegerField(null=True),
            gap_to=models.BigIntegerField(null=True),
            gap_count=models.BigIntegerField(db_default=0),
            gap_reason=models.CharField(max_length=8, null=True),
            records=models.BigIntegerField(null=True),
            bytes=models.BigIntegerField(null=True),
        ),
        table(
            "QueueFloor",
            id=models.BigAutoField(primary_key=True),
            value=models.BigIntegerField(),
            made_at=models.DateTimeField(),
            kind=models.SmallIntegerField(),
            rank=models.SmallIntegerField(),
            queue=queue(),
            indexes=[
                Index(fields=["queue", "kind", "rank", "value"], name="leasequeue_floor_place"),
            ],
        ),
        table(
            "QueueRank",
            id=models.BigAutoField(primary_key=True),
            rank=models.SmallIntegerField(),
            queue=queue(),
            indexes=[
                Index(fields=["queue", "rank"], name="leasequeue_rank_place"),
            ],
        ),
        table(
            "QueueStat",
            id=models.BigAutoField(primary_key=True),
            sampled_at=models.DateTimeField(),
            ready=models.BigIntegerField(),
            delayed=models.BigIntegerField(),
            leased=models.BigIntegerField(),
            dead=models.BigIntegerField(),
            records=models.BigIntegerField(),
            oldest_at=models.DateTimeField(null=True),
            queue=queue("samples"),
            indexes=[
                Index(fields=["sampled_at"], name="leasequeue_stat_age"),
            ],
            constraints=[
                UniqueConstraint(fields=["queue", "sampled_at"], name="leasequeue_stat_sample"),
            ],
        ),
        table(
            "Route",
            id=models.BigAutoField(primary_key=True),
            project=models.CharField(max_length=256),
            name=models.CharField(max_length=255),
            alias=models.CharField(max_length=255),
            source=models.CharField(max_length=255),
            moved_at=models.DateTimeField(),
            drained_at=models.DateTimeField(null=True),
            writers=ArrayField(models.TextField(), null=True),
            default_permissions=(),
            constraints=[
                UniqueConstraint(fields=["project", "name"], name="leasequeue_route_name"),
            ],
        ),
        table(
            "Timeline",
            timeline=models.BigIntegerField(primary_key=True),
            head=models.BigIntegerField(),
            mark=models.BigIntegerField(),
            sealed=models.BigIntegerField(),
            horizon=models.BigIntegerField(),
            noted_at=models.DateTimeField(),
            system=models.TextField(db_default=""),
        ),
        table(
            "UniqueKey",
            pk=models.CompositePrimaryKey("queue", "key"),
            queue=queue(),
            key=models.TextField(db_collation="C"),
            seq=models.BigIntegerField(),
            free_at=models.DateTimeField(null=True),
            until_start=models.BooleanField(),
        ),
        table(
            "IdempotencyKey",
            id=models.BigAutoField(primary_key=True),
            key=models.TextField(db_collation="C"),
            seqs=ArrayField(models.BigIntegerField()),
            created_at=models.DateTimeField(),
            expires_at=models.DateTimeField(),
            queue=queue(),
            indexes=[
                Index(fields=["expires_at"], name="leasequeue_idempotency_expires"),
            ],
            constraints=[
                UniqueConstraint(fields=["queue", "key"], name="leasequeue_idempotency_key"),
            ],
        ),
        *guard(
            "queue",
            "type_immutable",
            "283c9",
            "BEFORE UPDATE",
            condition="WHEN (OLD.type IS DISTINCT FROM NEW.type)",
            raises=(
                "leasequeue_queue_type_immutable",
                "the type of a queue cannot change: delete the queue and create it anew",
            ),
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]

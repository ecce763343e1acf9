"""Jobs: a job is written once, and narrow tables say where it stands. Their functions."""

from datetime import UTC, datetime

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import F, Index, Q, UniqueConstraint

from django_leasequeue.models.base import PlainJSONField, SameNumber

from . import function, guard, queue, table

# Half of a fencing token; the other half is random, because a crash of the server may hand out a number twice.
CREATE_TOKENS = "CREATE SEQUENCE leasequeue_claim_token_seq MAXVALUE 4294967295 CYCLE"
DROP_TOKENS = "DROP SEQUENCE leasequeue_claim_token_seq"

CREATE_TAGS_INDEX = """
CREATE INDEX leasequeue_job_tags ON leasequeue_job USING gin (leasequeue_tags(meta) jsonb_path_ops) WITH (fastupdate = off)
WHERE leasequeue_tags(meta) IS NOT NULL
"""

WRITTEN_ONCE = '"seq", "queue_id", "rank", "name", "tag", "data", "meta", "body", "origin", "created_at"'
WRITTEN_ONCE_CHANGES = (
    "WHEN (ROW(OLD.seq, OLD.queue_id, OLD.rank, OLD.name, OLD.tag, OLD.data::text, OLD.meta::text, OLD.body, OLD.origin,"
    " OLD.created_at) IS DISTINCT FROM ROW(NEW.seq, NEW.queue_id, NEW.rank, NEW.name, NEW.tag, NEW.data::text,"
    " NEW.meta::text, NEW.body, NEW.origin, NEW.created_at))"
)

# The hot tables live on few pages that change all the time. Vacuum them by count, not by share of the table, so that dead
# rows of a burst go soon; leave room on the page for the next version of a row.
STORAGE = """
ALTER TABLE leasequeue_job SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 20000);
ALTER TABLE leasequeue_ready SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1);
ALTER TABLE leasequeue_delayed SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1);
ALTER TABLE leasequeue_claim SET (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
ALTER TABLE leasequeue_jobresult SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.2);
ALTER TABLE leasequeue_claimwaiter SET UNLOGGED;
ALTER TABLE leasequeue_claimwaiter SET (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE leasequeue_worker SET (fillfactor = 50);
"""


class Migration(migrations.Migration):
    dependencies = [("leasequeue", "0001_initial")]

    operations = [
        migrations.RunSQL(CREATE_TOKENS, DROP_TOKENS),
        table(
            "Job",
            seq=models.BigIntegerField(primary_key=True),
            db_table="leasequeue_jobs",
            permissions=[
                ("view_payload", "Can see the payload of jobs"),
                ("retry_job", "Can retry dead letters"),
                ("redrive_job", "Can redrive dead letters to another queue"),
                ("discard_job", "Can discard dead letters"),
                ("edit_job", "Can edit the payload of a dead letter and retry it"),
                ("release_job", "Can release leased jobs"),
                ("cancel_job", "Can cancel jobs that have not started"),
            ],
            managed=False,
        ),
        table(
            "StoredJob",
            seq=models.BigAutoField(primary_key=True),
            created_at=models.DateTimeField(),
            expires_at=models.DateTimeField(null=True),
            result_ttl_ms=models.BigIntegerField(null=True),
            source_queue=models.BigIntegerField(null=True),
            source_seq=models.BigIntegerField(null=True),
            position=models.BigIntegerField(null=True),
            first_claimed_at=models.DateTimeField(null=True),
            max_deliveries=models.IntegerField(null=True),
            rank=models.SmallIntegerField(),
            generated=models.BooleanField(db_default=False),
            key=models.TextField(db_collation="C", null=True),
            name=models.TextField(null=True),
            tag=models.TextField(db_collation="C", null=True),
            origin=models.TextField(null=True),
            reply_to=models.TextField(null=True),
            data=PlainJSONField(null=True),
            meta=PlainJSONField(null=True),
            body=models.BinaryField(null=True),
            progress=PlainJSONField(null=True),
            queue=queue(),
            db_table="leasequeue_job",
            default_permissions=(),
            constraints=[
                UniqueConstraint(
                    fields=["key", "queue"], condition=Q(generated=False, key__isnull=False), name="leasequeue_job_key"
                ),
            ],
        ),
        table(
            "LargeObject",
            id=models.BigAutoField(primary_key=True),
            seq=models.BigIntegerField(null=True),
            created_at=models.DateTimeField(),
            size=models.BigIntegerField(),
            storage=models.TextField(),
            name=models.TextField(),
            default_permissions=(),
            indexes=[
                Index(F("seq"), F("id") + 0, name="leasequeue_largeobject_seq"),
            ],
        ),
        table(
            "Ready",
            pk=models.CompositePrimaryKey("queue", "rank", "lane", "position"),
            queue=queue(),
            position=models.BigIntegerField(),
            seq=models.BigIntegerField(),
            ready_at=models.DateTimeField(),
            deliveries=models.IntegerField(),
            rank=models.SmallIntegerField(),
            lane=models.SmallIntegerField(),
            flags=models.SmallIntegerField(),
            max_deliveries=models.IntegerField(null=True),
            expires_at=models.DateTimeField(null=True),
            tag=models.TextField(db_collation="C", null=True),
            indexes=[
                Index(
                    fields=["queue", "tag", "rank", "position"],
                    condition=Q(tag__isnull=False),
                    name="leasequeue_ready_tag",
                ),
                Index(
                    fields=["queue", "expires_at"],
                    condition=Q(expires_at__isnull=False),
                    name="leasequeue_ready_expires",
                ),
                Index(fields=["queue", "seq"], condition=~Q(position=F("seq")), name="leasequeue_ready_moved"),
            ],
        ),
        table(
            "Delayed",
            seq=models.BigIntegerField(primary_key=True),
            available_at=models.DateTimeField(),
            deliveries=models.IntegerField(),
            rank=models.SmallIntegerField(),
            flags=models.SmallIntegerField(),
            max_deliveries=models.IntegerField(null=True),
            expires_at=models.DateTimeField(null=True),
            tag=models.TextField(db_collation="C", null=True),
            queue=queue(),
            indexes=[
                Index(fields=["queue", "available_at"], name="leasequeue_delayed_due"),
                Index(
                    fields=["queue", "expires_at"],
                    condition=Q(expires_at__isnull=False),
                    name="leasequeue_delayed_expires",
                ),
                Index(fields=["queue", "tag"], condition=Q(tag__isnull=False), name="leasequeue_delayed_tag"),
                Index(
                    fields=["seq"],
                    condition=Q(available_at__gte=datetime(9001, 1, 1, tzinfo=UTC)),
                    name="leasequeue_delayed_cut_off",
                ),
                Index(fields=["seq"], condition=Q(flags__gte=1024), name="leasequeue_delayed_put_off"),
            ],
        ),
        table(
            "Record",
            pk=models.CompositePrimaryKey("queue", "seq"),
            queue=queue(),
            seq=models.BigIntegerField(),
            expires_at=models.DateTimeField(null=True),
            tag=models.TextField(db_collation="C", null=True),
            indexes=[
                Index(
                    fields=["queue", "expires_at"],
                    condition=Q(expires_at__isnull=False),
                    name="leasequeue_record_expires",
                ),
                Index(fields=["queue", "tag", "seq"], condition=Q(tag__isnull=False), name="leasequeue_record_tag"),
            ],
        ),
        table(
            "Worker",
            id=models.BigAutoField(primary_key=True),
            node=models.TextField(unique=True),
            host=models.TextField(),
            pid=models.IntegerField(),
            project=models.CharField(max_length=256),
            queues=ArrayField(models.TextField()),
            concurrency=models.IntegerField(),
            state=models.CharField(max_length=16),
            started_at=models.DateTimeField(),
            seen_at=models.DateTimeField(),
            completed=models.BigIntegerField(),
            failed=models.BigIntegerField(),
            retried=models.BigIntegerField(),
            lost=models.BigIntegerField(),
            running=models.JSONField(),
            info=models.JSONField(),
            stop_requested_at=models.DateTimeField(null=True),
            permissions=[("stop_worker", "Can ask workers to stop")],
            indexes=[
                Index(fields=["seen_at"], name="leasequeue_worker_seen"),
            ],
        ),
        table(
            "Claim",
            pk=models.CompositePrimaryKey("token", "part"),
            token=models.BigIntegerField(),
            deadline=models.DateTimeField(),
            created_at=models.DateTimeField(),
            ttl_ms=models.BigIntegerField(),
            grace_ms=models.BigIntegerField(),
            part=models.BigIntegerField(),
            flags=models.SmallIntegerField(),
            node=models.TextField(),
            name=models.TextField(null=True),
            connection=models.TextField(null=True),
            seqs=ArrayField(models.BigIntegerField()),
            deliveries=ArrayField(models.IntegerField(), null=True),
            queue=queue(),
            worker=SameNumber("leasequeue.worker", here="node", there="node", related_name="leases"),
            indexes=[
                Index(fields=["queue", "deadline"], name="leasequeue_claim_deadline"),
                Index(fields=["node"], name="leasequeue_claim_node"),
            ],
        ),
        table(
            "ClaimWaiter",
            id=models.BigAutoField(primary_key=True),
            node=models.TextField(),
            size=models.IntegerField(),
            lease_ms=models.BigIntegerField(null=True),
            connection=models.TextField(null=True),
            joined_at=models.DateTimeField(),
            closes_at=models.DateTimeField(),
            dealt_at=models.DateTimeField(null=True),
            claim=models.BigIntegerField(null=True),
            queue=queue(),
            indexes=[
                Index(fields=["queue", "id"], condition=Q(dealt_at__isnull=True), name="leasequeue_waiter_open"),
            ],
        ),
        table(
            "Attempt",
            id=models.BigAutoField(primary_key=True),
            seq=models.BigIntegerField(),
            at=models.DateTimeField(),
            delivery=models.IntegerField(),
            node=models.TextField(null=True),
            error_type=models.TextField(),
            message=models.TextField(),
            traceback=models.TextField(),
            fingerprint=models.TextField(),
            queue=queue(),
            job=SameNumber("leasequeue.job", related_name="attempts"),
            indexes=[
                Index(fields=["seq", "id"], name="leasequeue_attempt_job"),
            ],
        ),
        table(
            "JobResult",
            seq=models.BigIntegerField(primary_key=True),
            claim=models.BigIntegerField(null=True),
            claimed_at=models.DateTimeField(null=True),
            finished_at=models.DateTimeField(),
            expires_at=models.DateTimeField(),
            deliveries=models.IntegerField(),
            state=models.SmallIntegerField(),
            node=models.TextField(null=True),
            result=PlainJSONField(null=True),
            result_body=models.BinaryField(null=True),
            error_type=models.TextField(null=True),
            error=models.TextField(null=True),
            fingerprint=models.TextField(null=True),
            queue=queue("results"),
            job=SameNumber("leasequeue.job"),
            indexes=[
                Index(fields=["queue", "finished_at"], condition=~Q(state=1), name="leasequeue_result_failed"),
                Index(fields=["expires_at"], name="leasequeue_result_expires"),
            ],
        ),
        table(
            "DeadLetter",
            seq=models.BigIntegerField(primary_key=True),
            dead_at=models.DateTimeField(),
            expires_at=models.DateTimeField(null=True),
            deliveries=models.IntegerField(),
            in_place=models.BooleanField(),
            error_type=models.TextField(null=True),
            error=models.TextField(null=True),
            fingerprint=models.TextField(db_collation="C"),
            queue=queue("dead_letters"),
            job=SameNumber("leasequeue.job"),
            default_permissions=(),
            indexes=[
                Index(
                    F("queue"),
                    F("fingerprint"),
                    F("dead_at"),
                    F("seq") + 0,
                    include=["seq"],
                    name="leasequeue_dead_cause",
                ),
                Index(
                    fields=["queue", "fingerprint"], condition=Q(deliveries__lt=2147483647), name="leasequeue_dead_size"
                ),
                Index(F("queue"), F("dead_at"), F("seq") + 0, include=["seq"], name="leasequeue_dead_died"),
                Index(
                    fields=["queue", "expires_at"],
                    condition=Q(expires_at__isnull=False),
                    name="leasequeue_dead_expires",
                ),
            ],
        ),
        *guard(
            "storedjob",
            "written_once",
            "bd27b",
            f"BEFORE UPDATE OF {WRITTEN_ONCE}",
            table="leasequeue_job",
            condition=WRITTEN_ONCE_CHANGES,
            raises=(
                "leasequeue_job_written_once",
                "what was enqueued is not changed: cancel the job and enqueue another, or edit its dead letter",
            ),
        ),
        *guard(
            "storedjob",
            "removed_by_engine",
            "27246",
            "AFTER DELETE",
            table="leasequeue_job",
            level="STATEMENT",
            condition="WHEN (current_setting('leasequeue.removes', true) IS DISTINCT FROM statement_timestamp()::text)",
            raises=(
                "leasequeue_job_removed_by_engine",
                "a job whose row is deleted is lost: Job.objects.filter(...) has cancel() and discard(), a queue purge()",
            ),
        ),
        function("errors"),
        function("jsonb"),
        function("tags"),
        migrations.RunSQL(CREATE_TAGS_INDEX, "DROP INDEX leasequeue_job_tags"),
        function("job_id"),
        function("id_numbers"),
        function("keyed"),
        function("ready_at"),
        function("add_task"),
        function("enqueue"),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]

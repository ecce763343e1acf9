"""Workers, people and the lake: recurring tasks, keys of the API, bulk operations, the audit, exported slices."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint
from django.db.models.functions import Now

from django_leasequeue.models.base import PlainJSONField, SameNumber

from . import guard, table, trigger

APPEND_ONLY = (
    'the audit is append-only; maintenance passes with pgtrigger.ignore("leasequeue.OperatorAction:append_only")'
)

# A changed schedule is computed anew, a changed task stored anew.
FOLLOW_RECURRING = """
    IF (OLD.schedule, OLD.timezone, OLD.phase, OLD.until, OLD.times, OLD.enabled)
        IS DISTINCT FROM (NEW.schedule, NEW.timezone, NEW.phase, NEW.until, NEW.times, NEW.enabled) THEN
        NEW.next_tick_at := NULL;
        NEW.ended_at := NULL;
    END IF;
    IF (OLD.task, OLD.args, OLD.kwargs, OLD.backend, OLD.queue_name, OLD.priority, OLD.expires)
        IS DISTINCT FROM (NEW.task, NEW.args, NEW.kwargs, NEW.backend, NEW.queue_name, NEW.priority, NEW.expires)
        AND OLD.template IS NOT DISTINCT FROM NEW.template THEN
        NEW.template := NULL;
    END IF;
    RETURN NEW;
"""


class Migration(migrations.Migration):
    dependencies = [("leasequeue", "0004_flow")]

    operations = [
        table(
            "ReaperTerm",
            term=models.BigIntegerField(primary_key=True),
            single=models.BooleanField(unique=True),
            beat=models.BigIntegerField(),
            holder=models.TextField(),
            address=models.TextField(),
            began_at=models.DateTimeField(),
            beat_at=models.DateTimeField(),
            duties=models.JSONField(),
        ),
        table(
            "RecurringTask",
            id=models.BigAutoField(primary_key=True),
            service=models.CharField(max_length=128),
            name=models.CharField(max_length=128),
            schedule=models.CharField(max_length=128),
            timezone=models.CharField(max_length=64),
            task=models.TextField(),
            args=models.JSONField(),
            kwargs=models.JSONField(),
            backend=models.CharField(max_length=64),
            queue_name=models.CharField(max_length=255),
            priority=models.SmallIntegerField(null=True),
            grace=models.PositiveIntegerField(null=True),
            until=models.DateTimeField(null=True),
            times=models.PositiveIntegerField(null=True),
            phase=models.PositiveIntegerField(db_default=0),
            jitter=models.PositiveIntegerField(db_default=0),
            expires=models.PositiveIntegerField(null=True),
            enabled=models.BooleanField(),
            paused=models.BooleanField(),
            from_settings=models.BooleanField(),
            template=models.JSONField(null=True),
            last_tick_at=models.DateTimeField(null=True),
            next_tick_at=models.DateTimeField(null=True),
            runs=models.PositiveIntegerField(db_default=0),
            ended_at=models.DateTimeField(null=True),
            last_seq=models.BigIntegerField(null=True),
            last_error=models.TextField(),
            failed_at=models.DateTimeField(null=True),
            created_at=models.DateTimeField(),
            last_job=SameNumber("leasequeue.job", here="last_seq", there="seq"),
            indexes=[
                Index(
                    fields=["next_tick_at"],
                    condition=Q(enabled=True, ended_at__isnull=True),
                    name="leasequeue_recurring_next",
                ),
            ],
            constraints=[
                UniqueConstraint(fields=["service", "name"], name="leasequeue_recurring_name"),
            ],
        ),
        table(
            "ApiKey",
            id=models.BigAutoField(primary_key=True),
            name=models.CharField(max_length=128),
            prefix=models.CharField(max_length=16, unique=True),
            digest=models.CharField(max_length=64),
            scopes=ArrayField(models.CharField(max_length=16)),
            topics=ArrayField(models.CharField(max_length=255)),
            project=models.CharField(max_length=256),
            rate_per_second=models.PositiveIntegerField(null=True),
            created_at=models.DateTimeField(),
            expires_at=models.DateTimeField(null=True),
            revoked_at=models.DateTimeField(null=True),
            last_used_at=models.DateTimeField(null=True),
            constraints=[
                CheckConstraint(
                    condition=Q(
                        scopes__contained_by=[
                            "read",
                            "write",
                            "delete",
                            "admin",
                            "projects",
                            "emit",
                            "payloads",
                            "metrics",
                        ]
                    ),
                    name="leasequeue_apikey_scopes",
                ),
                CheckConstraint(
                    condition=~Q(scopes__contains=["projects"]) | Q(topics=[]), name="leasequeue_apikey_projects"
                ),
            ],
        ),
        table(
            "PausedTask",
            id=models.BigAutoField(primary_key=True),
            project=models.TextField(),
            name=models.TextField(db_collation="C"),
            paused_at=models.DateTimeField(),
            paused_by=models.TextField(),
            permissions=[("pause_task", "Can pause and resume tasks")],
            default_permissions=(),
            constraints=[
                UniqueConstraint(fields=["project", "name"], name="leasequeue_pausedtask_name"),
            ],
        ),
        table(
            "BulkOperation",
            id=models.BigAutoField(primary_key=True),
            kind=models.CharField(max_length=8),
            state=models.CharField(max_length=9),
            project=models.CharField(max_length=256, null=True),
            queue=models.CharField(max_length=255, null=True),
            filters=models.TextField(),
            seqs=ArrayField(models.BigIntegerField(), null=True),
            frozen_at=models.DateTimeField(),
            target=models.CharField(max_length=255, null=True),
            rate=models.FloatField(null=True),
            jitter_ms=models.IntegerField(),
            reason=models.TextField(),
            user_id=models.CharField(max_length=64),
            username=models.CharField(max_length=255),
            expected=models.BigIntegerField(null=True),
            expected_capped=models.BooleanField(),
            looked_at=models.BigIntegerField(),
            done=models.BigIntegerField(),
            conflicts=models.BigIntegerField(),
            conflict_counts=models.JSONField(),
            conflict_sample=models.JSONField(),
            cursor=models.JSONField(null=True),
            paced_at=models.DateTimeField(null=True),
            created_at=models.DateTimeField(),
            started_at=models.DateTimeField(null=True),
            changed_at=models.DateTimeField(null=True),
            finished_at=models.DateTimeField(null=True),
            error=models.TextField(),
            from_step=models.TextField(null=True),
            default_permissions=("view",),
            indexes=[
                Index(
                    fields=["id"],
                    condition=Q(state__in=("pending", "running", "paused")),
                    name="leasequeue_operation_active",
                ),
            ],
            constraints=[
                UniqueConstraint(
                    fields=["project", "queue", "kind"],
                    condition=Q(state__in=("pending", "running", "paused")),
                    nulls_distinct=False,
                    name="leasequeue_operation_one_active",
                ),
                CheckConstraint(condition=Q(rate__isnull=True) | Q(rate__gt=0), name="leasequeue_operation_rate"),
                CheckConstraint(condition=Q(jitter_ms__range=(0, 86400000)), name="leasequeue_operation_jitter"),
                CheckConstraint(
                    condition=~Q(kind="redrive") | Q(target__isnull=False), name="leasequeue_operation_target"
                ),
                CheckConstraint(condition=~Q(kind="discard") | ~Q(reason=""), name="leasequeue_operation_reason"),
            ],
        ),
        table(
            "OperatorAction",
            id=models.BigAutoField(primary_key=True),
            at=models.DateTimeField(),
            user_id=models.CharField(max_length=64),
            username=models.CharField(max_length=255),
            source=models.CharField(max_length=16),
            action=models.CharField(max_length=32),
            project=models.CharField(max_length=256),
            queue=models.CharField(max_length=255),
            seqs=ArrayField(models.BigIntegerField()),
            filters=models.TextField(),
            counts=models.JSONField(),
            reason=models.TextField(),
            detail=models.JSONField(),
            operation=models.ForeignKey(
                "leasequeue.bulkoperation",
                models.DO_NOTHING,
                related_name="+",
                db_constraint=False,
                db_index=False,
                null=True,
            ),
            default_permissions=("view",),
            indexes=[
                Index(fields=["username", "-id"], name="leasequeue_action_user"),
                Index(fields=["queue", "-id"], name="leasequeue_action_queue"),
                Index(fields=["action", "-id"], name="leasequeue_action_action"),
            ],
        ),
        table(
            "SavedFilter",
            id=models.BigAutoField(primary_key=True),
            name=models.CharField(max_length=80),
            owner=models.CharField(max_length=64),
            owner_name=models.CharField(max_length=255),
            shared=models.BooleanField(),
            query=models.TextField(),
            page=models.CharField(db_default="deadletters", max_length=16),
            created_at=models.DateTimeField(),
            default_permissions=(),
            indexes=[
                Index(fields=["name"], condition=Q(shared=True), name="leasequeue_savedfilter_shared"),
            ],
            constraints=[
                UniqueConstraint(fields=["owner", "name"], name="leasequeue_savedfilter_name"),
            ],
        ),
        table(
            "LakeConsumer",
            id=models.BigAutoField(primary_key=True),
            name=models.CharField(max_length=64, unique=True),
            txid=models.BigIntegerField(),
            event=models.BigIntegerField(),
            horizon=models.BigIntegerField(),
            registered_at=models.DateTimeField(),
            seen_at=models.DateTimeField(),
            moved_at=models.DateTimeField(),
            overtaken_at=models.DateTimeField(null=True),
        ),
        table(
            "LakeSlice",
            id=models.BigAutoField(primary_key=True),
            low=models.BigIntegerField(unique=True),
            high=models.BigIntegerField(),
            state=models.CharField(max_length=8),
            attempt=models.CharField(max_length=32),
            path=models.TextField(),
            files=models.JSONField(),
            rows=models.BigIntegerField(null=True),
            sums=models.JSONField(null=True),
            min_txid=models.BigIntegerField(null=True),
            max_txid=models.BigIntegerField(null=True),
            first_at=models.DateTimeField(null=True),
            last_at=models.DateTimeField(null=True),
            planned_at=models.DateTimeField(),
            verified_at=models.DateTimeField(null=True),
            pruned_at=models.DateTimeField(null=True),
        ),
        table(
            "LakeWrite",
            id=models.BigAutoField(primary_key=True),
            write_id=models.CharField(max_length=200),
            batch=models.BigIntegerField(),
            committed_at=models.DateTimeField(),
            staged=models.BigIntegerField(),
            enqueued=models.BigIntegerField(),
            constraints=[
                UniqueConstraint(fields=["write_id", "batch"], name="leasequeue_lakewrite_once"),
            ],
        ),
        table(
            "LakeStage",
            id=models.BigAutoField(primary_key=True),
            part=models.UUIDField(),
            staged_at=models.DateTimeField(db_default=Now()),
            queue=models.TextField(),
            key=models.TextField(db_collation="C", null=True),
            name=models.TextField(null=True),
            tag=models.TextField(null=True),
            priority=models.IntegerField(null=True),
            data=PlainJSONField(null=True),
            body=models.BinaryField(null=True),
            meta=PlainJSONField(null=True),
            run_at=models.DateTimeField(null=True),
            ttl_ms=models.BigIntegerField(null=True),
            result_ttl_ms=models.BigIntegerField(null=True),
            max_deliveries=models.IntegerField(null=True),
            reply_to=models.TextField(null=True),
            source_seq=models.BigIntegerField(null=True),
            indexes=[
                Index(fields=["part"], name="leasequeue_lakestage_part"),
            ],
        ),
        table(
            "LakeFigure",
            id=models.BigAutoField(primary_key=True),
            project=models.CharField(max_length=256),
            queue=models.CharField(max_length=255),
            hour=models.DateTimeField(),
            figures=models.JSONField(),
            computed_at=models.DateTimeField(),
            constraints=[
                UniqueConstraint(fields=["project", "queue", "hour"], name="leasequeue_lakefigure_hour"),
            ],
        ),
        *trigger("recurringtask", "follow", "5f18d", "BEFORE UPDATE", func=FOLLOW_RECURRING),
        *guard(
            "operatoraction",
            "append_only",
            "8f605",
            "BEFORE UPDATE OR DELETE",
            raises=("leasequeue_action_append_only", APPEND_ONLY),
        ),
        migrations.RunSQL("ALTER TABLE leasequeue_lakestage SET UNLOGGED", migrations.RunSQL.noop),
    ]

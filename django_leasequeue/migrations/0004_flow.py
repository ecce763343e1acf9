"""Limits, workflows, steps and the events that jobs wait for: tables of their own, which plain jobs do not read."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint

from django_leasequeue.models.base import PlainJSONField, SameNumber

from . import function, queue, table, trigger

# What a claim no longer holds.
NOTE_LEFT = """
    PERFORM leasequeue_leave_turns(OLD.queue_id, OLD.flags,
        ARRAY(SELECT unnest(OLD.seqs) EXCEPT SELECT unnest(NEW.seqs)));
    RETURN NULL;
"""

# Rows that change where they stand: room on the page for the next version, and vacuum by count.
STORAGE = """
ALTER TABLE leasequeue_member SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
ALTER TABLE leasequeue_limitkey SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE leasequeue_flowturn SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE leasequeue_workflow SET (fillfactor = 50);
"""


class Migration(migrations.Migration):
    dependencies = [("leasequeue", "0003_log")]

    operations = [
        function("leave_turns"),
        table(
            "Limit",
            id=models.BigAutoField(primary_key=True),
            project=models.CharField(max_length=256),
            name=models.CharField(max_length=255),
            concurrency=models.IntegerField(null=True),
            rate=models.IntegerField(null=True),
            per_ms=models.BigIntegerField(null=True),
            burst=models.IntegerField(),
            fair=models.BooleanField(),
            pinned=models.BooleanField(),
            code=models.JSONField(null=True),
            updated_at=models.DateTimeField(),
            constraints=[
                UniqueConstraint(fields=["project", "name"], name="leasequeue_limit_name"),
                CheckConstraint(
                    condition=(Q(concurrency__isnull=True) | Q(concurrency__range=(1, 10000)))
                    & (
                        Q(per_ms__isnull=True, rate__isnull=True)
                        | Q(per_ms__range=(100, 86400000), rate__range=(1, 1000000))
                    )
                    & Q(burst__range=(0, 1000000)),
                    name="leasequeue_limit_values",
                ),
            ],
        ),
        table(
            "LimitKey",
            id=models.BigAutoField(primary_key=True),
            key=models.TextField(db_collation="C"),
            paid_until=models.DateTimeField(null=True),
            started=ArrayField(models.BigIntegerField(), null=True),
            counts=ArrayField(models.IntegerField(), null=True),
            limit=models.ForeignKey(
                "leasequeue.limit", models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
            ),
            constraints=[
                UniqueConstraint(fields=["limit", "key"], name="leasequeue_limitkey_key"),
            ],
        ),
        table(
            "FlowTurn",
            id=models.BigAutoField(primary_key=True),
            at=models.DateTimeField(),
            kind=models.SmallIntegerField(),
            key=models.BigIntegerField(null=True),
            seqs=ArrayField(models.BigIntegerField(), null=True),
            detail=models.JSONField(null=True),
            queue=queue(),
            indexes=[
                Index(fields=["queue", "at", "id"], name="leasequeue_flowturn_due"),
                Index(fields=["key"], condition=Q(kind=4), name="leasequeue_flowturn_extend"),
                Index(fields=["key"], condition=Q(kind=5), name="leasequeue_flowturn_follow"),
                Index(fields=["key"], condition=Q(kind=3), name="leasequeue_flowturn_key"),
            ],
        ),
        table(
            "Workflow",
            id=models.BigAutoField(primary_key=True),
            uid=models.UUIDField(unique=True),
            project=models.CharField(max_length=256),
            name=models.CharField(max_length=255),
            state=models.SmallIntegerField(),
            shape=models.SmallIntegerField(db_default=2),
            total=models.IntegerField(),
            edges=models.IntegerField(db_default=0),
            completed=models.IntegerField(),
            failed=models.IntegerField(),
            cancelled=models.IntegerField(),
            on_failure=models.BigIntegerField(null=True),
            created_at=models.DateTimeField(),
            ended_at=models.DateTimeField(null=True),
            expires_at=models.DateTimeField(null=True),
            indexes=[
                Index(fields=["expires_at"], condition=Q(expires_at__isnull=False), name="leasequeue_workflow_expires"),
            ],
        ),
        table(
            "Member",
            seq=models.BigIntegerField(primary_key=True),
            rank=models.SmallIntegerField(),
            key=models.BigIntegerField(null=True),
            taken=models.BooleanField(),
            waits=models.BooleanField(),
            workflow=models.BigIntegerField(null=True),
            state=models.SmallIntegerField(),
            pending=models.IntegerField(),
            tolerant=models.BooleanField(),
            for_failure=models.BooleanField(db_default=False),
            delay_ms=models.BigIntegerField(null=True),
            not_before=models.DateTimeField(null=True),
            place=models.IntegerField(),
            label=models.TextField(),
            task=models.TextField(null=True),
            parents=ArrayField(models.BigIntegerField(), null=True),
            children=ArrayField(models.BigIntegerField(), null=True),
            queue=queue(),
            indexes=[
                Index(fields=["key", "rank", "seq"], condition=Q(waits=True), name="leasequeue_member_waits"),
                Index(fields=["key"], condition=Q(taken=True), name="leasequeue_member_taken"),
                Index(
                    fields=["workflow", "seq"], condition=Q(workflow__isnull=False), name="leasequeue_member_workflow"
                ),
            ],
        ),
        table(
            "JobStep",
            pk=models.CompositePrimaryKey("seq", "name"),
            seq=models.BigIntegerField(),
            number=models.IntegerField(),
            name=models.TextField(db_collation="C"),
            value=PlainJSONField(null=True),
            done_at=models.DateTimeField(),
            delivery=models.IntegerField(),
            until=models.DateTimeField(null=True),
            project=models.TextField(db_collation="C", null=True),
            event=models.TextField(db_collation="C", null=True),
            undo=models.TextField(null=True),
            job=SameNumber("leasequeue.job", related_name="steps"),
            indexes=[
                Index(
                    fields=["event", "project", "seq"],
                    condition=Q(event__isnull=False),
                    name="leasequeue_jobstep_event",
                ),
                Index(fields=["seq"], condition=Q(event__isnull=False), name="leasequeue_jobstep_waiting"),
                Index(
                    fields=["done_at", "seq"],
                    condition=Q(event__isnull=True, value__isnull=True),
                    name="leasequeue_jobstep_asleep",
                ),
            ],
        ),
        table(
            "EmittedEvent",
            pk=models.CompositePrimaryKey("project", "name"),
            project=models.TextField(db_collation="C"),
            name=models.TextField(db_collation="C"),
            payload=PlainJSONField(null=True),
            emitted_at=models.DateTimeField(),
            expires_at=models.DateTimeField(),
            permissions=(("emit_event", "Can emit events"),),
            indexes=[
                Index(fields=["expires_at"], name="leasequeue_emittedevent_expiry"),
            ],
        ),
        *trigger(
            "claim",
            "flow",
            "97f85",
            'AFTER UPDATE OF "seqs" OR DELETE',
            condition="WHEN (OLD.flags & 384 <> 0)",
            func=NOTE_LEFT,
        ),
        function("holds"),
        function("make_due"),
        function("emit"),
        function("wake"),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]

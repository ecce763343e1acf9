"""Limits and workflows: new tables, and a trigger on claims that costs plain ones no function call."""

import django.contrib.postgres.fields
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from . import frozen

# django-pgtrigger removes its triggers with their tables, but leaves their functions.
DROP_TRIGGER_FUNCTIONS = "DROP FUNCTION IF EXISTS pgtrigger_flow_97f85()"

DROP_TURNS = "DROP FUNCTION leasequeue_leave_turns(bigint, int, bigint[])"

# Rows that change where they stand: room on the page for the next version, and vacuum by count.
STORAGE = """
ALTER TABLE leasequeue_member SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
ALTER TABLE leasequeue_limitkey SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE leasequeue_flowturn SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE leasequeue_workflow SET (fillfactor = 50);
"""

# Backward: nothing is left that would set held jobs free. Those of limits go on without; those of workflows that run would start before
# what they wait for.
GIVE_BACK = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM leasequeue_member m JOIN leasequeue_delayed d ON d.seq = m.seq
            JOIN leasequeue_workflow w ON w.id = m.workflow WHERE w.state = 0 AND d.available_at >= '9000-01-01 00:00+00') THEN
        RAISE EXCEPTION 'Workflows are running: the release before this migration would never start what waits in them.'
            USING HINT = 'Let them end, or cancel them, and migrate again.';
    END IF;
    PERFORM set_config('leasequeue.removes', statement_timestamp()::text, true);
    DELETE FROM leasequeue_job j USING leasequeue_delayed d, leasequeue_member m
        WHERE d.seq = j.seq AND m.seq = j.seq AND m.workflow IS NOT NULL AND d.available_at >= '9000-01-01 00:00+00';
    DELETE FROM leasequeue_delayed d USING leasequeue_member m
        WHERE m.seq = d.seq AND m.workflow IS NOT NULL AND d.available_at >= '9000-01-01 00:00+00';
    UPDATE leasequeue_delayed SET available_at = clock_timestamp(), flags = flags & 127
        WHERE available_at >= '9000-01-01 00:00+00';
END $$
"""


class Migration(migrations.Migration):
    dependencies = [
        ("leasequeue", "0001_initial"),
    ]

    operations = [
        # First forward is last backward.
        migrations.RunSQL(migrations.RunSQL.noop, DROP_TRIGGER_FUNCTIONS),
        migrations.RunSQL(frozen("leave_turns", 1), DROP_TURNS),
        migrations.CreateModel(
            name="FlowTurn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                (
                    "kind",
                    models.SmallIntegerField(
                        choices=[
                            (1, "bring new jobs under their limits"),
                            (2, "look where jobs stand that have moved"),
                            (3, "admit jobs of a key"),
                            (4, "link new nodes of a workflow"),
                            (5, "give a node the new number of its job"),
                        ]
                    ),
                ),
                ("key", models.BigIntegerField(null=True)),
                (
                    "seqs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
                ("detail", models.JSONField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Limit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("project", models.CharField(blank=True, default="", max_length=256)),
                ("name", models.CharField(max_length=255)),
                ("concurrency", models.IntegerField(blank=True, null=True)),
                ("rate", models.IntegerField(blank=True, null=True)),
                ("per_ms", models.BigIntegerField(blank=True, null=True)),
                ("burst", models.IntegerField(default=0)),
                ("fair", models.BooleanField(default=False)),
                ("pinned", models.BooleanField(default=False)),
                ("code", models.JSONField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="LimitKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.TextField(db_collation="C")),
                ("paid_until", models.DateTimeField(null=True)),
                (
                    "started",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
                (
                    "counts",
                    django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), null=True, size=None),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Member",
            fields=[
                ("seq", models.BigIntegerField(primary_key=True, serialize=False)),
                ("rank", models.SmallIntegerField(default=0)),
                ("key", models.BigIntegerField(null=True)),
                ("taken", models.BooleanField(default=False)),
                ("waits", models.BooleanField(default=False)),
                ("workflow", models.BigIntegerField(null=True)),
                (
                    "state",
                    models.SmallIntegerField(
                        choices=[(0, "open"), (1, "completed"), (2, "failed"), (3, "cancelled")], default=0
                    ),
                ),
                ("pending", models.IntegerField(default=0)),
                ("tolerant", models.BooleanField(default=False)),
                ("for_failure", models.BooleanField(db_default=False, default=False)),
                ("delay_ms", models.BigIntegerField(null=True)),
                ("not_before", models.DateTimeField(null=True)),
                ("place", models.IntegerField(default=0)),
                ("label", models.TextField(default="")),
                ("task", models.TextField(null=True)),
                (
                    "parents",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
                (
                    "children",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Workflow",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("uid", models.UUIDField(unique=True)),
                ("project", models.CharField(blank=True, default="", max_length=256)),
                ("name", models.CharField(blank=True, default="", max_length=255)),
                (
                    "state",
                    models.SmallIntegerField(
                        choices=[(0, "running"), (1, "completed"), (2, "failed"), (3, "cancelled")], default=0
                    ),
                ),
                (
                    "shape",
                    models.SmallIntegerField(
                        choices=[
                            (0, "value of the last job"),
                            (1, "list of the values of the last jobs"),
                            (2, "mapping of the names of the last jobs to their values"),
                        ],
                        db_default=2,
                        default=2,
                    ),
                ),
                ("total", models.IntegerField()),
                ("edges", models.IntegerField(default=0, db_default=0)),
                ("completed", models.IntegerField(default=0)),
                ("failed", models.IntegerField(default=0)),
                ("cancelled", models.IntegerField(default=0)),
                ("on_failure", models.BigIntegerField(null=True)),
                ("created_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
            ],
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="claim",
            trigger=pgtrigger.compiler.Trigger(
                name="flow",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.flags & 384 <> 0)",
                    func="\n    PERFORM leasequeue_leave_turns(OLD.queue_id, OLD.flags,\n        ARRAY(SELECT unnest(OLD.seqs) EXCEPT SELECT unnest(NEW.seqs)));\n    RETURN NULL;\n",
                    hash="6dfb6b6c99c78dc3af0694a10316a3a671df3643",
                    ignore_func_name="_pgtrigger_should_ignore",
                    operation='UPDATE OF "seqs" OR DELETE',
                    pgid="pgtrigger_flow_97f85",
                    table="leasequeue_claim",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddField(
            model_name="flowturn",
            name="queue",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="leasequeue.queue",
            ),
        ),
        migrations.AddConstraint(
            model_name="limit",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="leasequeue_limit_name"),
        ),
        migrations.AddConstraint(
            model_name="limit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("concurrency__isnull", True), ("concurrency__range", (1, 10000)), _connector="OR"),
                    models.Q(
                        models.Q(("per_ms__isnull", True), ("rate__isnull", True)),
                        models.Q(("per_ms__range", (100, 86400000)), ("rate__range", (1, 1000000))),
                        _connector="OR",
                    ),
                    ("burst__range", (0, 1000000)),
                ),
                name="leasequeue_limit_values",
            ),
        ),
        migrations.AddField(
            model_name="limitkey",
            name="limit",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="leasequeue.limit",
            ),
        ),
        migrations.AddField(
            model_name="member",
            name="queue",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="leasequeue.queue",
            ),
        ),
        migrations.AddIndex(
            model_name="workflow",
            index=models.Index(
                condition=models.Q(("expires_at__isnull", False)),
                fields=["expires_at"],
                name="leasequeue_workflow_expires",
            ),
        ),
        migrations.AddIndex(
            model_name="flowturn",
            index=models.Index(fields=["queue", "at", "id"], name="leasequeue_flowturn_due"),
        ),
        migrations.AddIndex(
            model_name="flowturn",
            index=models.Index(condition=models.Q(("kind", 4)), fields=["key"], name="leasequeue_flowturn_extend"),
        ),
        migrations.AddIndex(
            model_name="flowturn",
            index=models.Index(condition=models.Q(("kind", 5)), fields=["key"], name="leasequeue_flowturn_follow"),
        ),
        migrations.AddIndex(
            model_name="flowturn",
            index=models.Index(condition=models.Q(("kind", 3)), fields=["key"], name="leasequeue_flowturn_key"),
        ),
        migrations.AddConstraint(
            model_name="limitkey",
            constraint=models.UniqueConstraint(fields=("limit", "key"), name="leasequeue_limitkey_key"),
        ),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(
                condition=models.Q(("waits", True)), fields=["key", "rank", "seq"], name="leasequeue_member_waits"
            ),
        ),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(condition=models.Q(("taken", True)), fields=["key"], name="leasequeue_member_taken"),
        ),
        migrations.AddIndex(
            model_name="member",
            index=models.Index(
                condition=models.Q(("workflow__isnull", False)),
                fields=["workflow", "seq"],
                name="leasequeue_member_workflow",
            ),
        ),
        migrations.AddField(model_name="queue", name="concurrency", field=models.IntegerField(default=0, db_default=0)),
        migrations.AddField(
            model_name="queue",
            name="holds_tasks",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AddConstraint(
            model_name="queue",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("concurrency__range", (0, 10000)),
                    models.Q(("concurrency", 0), ("claim_jitter_ms", 0), _connector="OR"),
                ),
                name="leasequeue_queue_concurrency",
            ),
        ),
        migrations.RunSQL(STORAGE, GIVE_BACK),
    ]

"""What the steps of jobs have returned, and the events that jobs wait for: tables of their own, which nothing else reads."""

from django.db import migrations, models

import django_leasequeue.models.base

from . import frozen

DROP = """
DROP FUNCTION leasequeue_holds(bigint, bigint, text, timestamptz, boolean);
DROP FUNCTION leasequeue_emit(text, text, json, bigint, int, timestamptz);
DROP FUNCTION leasequeue_make_due(text, text, int, timestamptz);
DROP FUNCTION leasequeue_wake(bigint[], timestamptz);
"""


# Backward: without its steps a job would start from its beginning, what it has done is done again.
REFUSE = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM leasequeue_jobstep s JOIN leasequeue_job j ON j.seq = s.seq
            WHERE NOT EXISTS (SELECT FROM leasequeue_jobresult r WHERE r.seq = s.seq)) THEN
        RAISE EXCEPTION 'Jobs have done steps: the release before this migration would do them again.'
            USING HINT = 'Let the jobs end, or cancel them, and migrate again.';
    END IF;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("leasequeue", "0003_models"),
    ]

    operations = [
        migrations.CreateModel(
            name="EmittedEvent",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "project", "name", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("project", models.TextField(db_collation="C")),
                ("name", models.TextField(db_collation="C")),
                ("payload", django_leasequeue.models.base.PlainJSONField(null=True)),
                ("emitted_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
            ],
            options={
                "permissions": (("emit_event", "Can emit events"),),
                "indexes": [models.Index(fields=["expires_at"], name="leasequeue_emittedevent_expiry")],
            },
        ),
        migrations.CreateModel(
            name="JobStep",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "seq", "name", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("seq", models.BigIntegerField()),
                ("number", models.IntegerField()),
                ("name", models.TextField(db_collation="C")),
                ("value", django_leasequeue.models.base.PlainJSONField(null=True)),
                ("done_at", models.DateTimeField()),
                ("delivery", models.IntegerField()),
                ("until", models.DateTimeField(null=True)),
                ("project", models.TextField(db_collation="C", null=True)),
                ("event", models.TextField(db_collation="C", null=True)),
                ("undo", models.TextField(null=True)),
                (
                    "job",
                    django_leasequeue.models.base.SameNumber(
                        here="seq", related_name="steps", there="seq", to="leasequeue.job"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("event__isnull", False)),
                        fields=["event", "project", "seq"],
                        name="leasequeue_jobstep_event",
                    ),
                    models.Index(
                        condition=models.Q(("event__isnull", False)),
                        fields=["seq"],
                        name="leasequeue_jobstep_waiting",
                    ),
                    models.Index(
                        condition=models.Q(("event__isnull", True), ("value__isnull", True)),
                        fields=["done_at", "seq"],
                        name="leasequeue_jobstep_asleep",
                    ),
                ],
            },
        ),
        migrations.AddField("BulkOperation", "from_step", models.TextField(blank=True, null=True)),
        migrations.RunSQL("".join(frozen(name, 1) for name in ("holds", "make_due", "emit", "wake")), DROP),
        migrations.RunSQL(migrations.RunSQL.noop, REFUSE),
    ]

"""Triage of dead letters: bulk operations, the audit, saved filters, the permissions of operators.

New tables only, and options that live in Python: nothing that runs is touched. The index that lists need is made by the next
migration, which cannot be in a transaction.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leasequeue", "0003_lake"),
    ]

    operations = [
        # First forward is last backward: django-pgtrigger removes its triggers with their tables, not their functions.
        migrations.RunSQL(migrations.RunSQL.noop, "DROP FUNCTION IF EXISTS pgtrigger_append_only_8f605()"),
        migrations.CreateModel(
            name="BulkOperation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("retry", "retry"), ("redrive", "redrive to another queue"), ("discard", "discard")],
                        max_length=8,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "waiting for the reaper"),
                            ("running", "running"),
                            ("paused", "paused"),
                            ("done", "done"),
                            ("cancelled", "cancelled"),
                            ("failed", "failed"),
                        ],
                        default="pending",
                        max_length=9,
                    ),
                ),
                ("project", models.CharField(blank=True, max_length=256, null=True)),
                ("queue", models.CharField(blank=True, max_length=255, null=True)),
                ("filters", models.TextField(blank=True, default="")),
                (
                    "seqs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), blank=True, null=True, size=None
                    ),
                ),
                ("frozen_at", models.DateTimeField()),
                ("target", models.CharField(blank=True, max_length=255, null=True)),
                (
                    "rate",
                    models.FloatField(blank=True, help_text="jobs a second; empty: as fast as it goes", null=True),
                ),
                ("jitter_ms", models.IntegerField(default=0)),
                ("reason", models.TextField(blank=True, default="")),
                ("user_id", models.CharField(blank=True, default="", max_length=64)),
                ("username", models.CharField(blank=True, default="", max_length=255)),
                ("expected", models.BigIntegerField(null=True)),
                ("expected_capped", models.BooleanField(default=False)),
                ("looked_at", models.BigIntegerField(default=0)),
                ("done", models.BigIntegerField(default=0)),
                ("conflicts", models.BigIntegerField(default=0)),
                ("conflict_counts", models.JSONField(default=dict)),
                ("conflict_sample", models.JSONField(default=list)),
                ("cursor", models.JSONField(null=True)),
                ("paced_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("changed_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("error", models.TextField(blank=True, default="")),
            ],
            options={
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="OperatorAction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("user_id", models.CharField(blank=True, default="", max_length=64)),
                ("username", models.CharField(blank=True, default="", max_length=255)),
                ("source", models.CharField(default="admin", max_length=16)),
                ("action", models.CharField(max_length=32)),
                ("project", models.CharField(blank=True, default="", max_length=256)),
                ("queue", models.CharField(blank=True, default="", max_length=255)),
                (
                    "seqs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), blank=True, default=list, size=None
                    ),
                ),
                ("filters", models.TextField(blank=True, default="")),
                ("counts", models.JSONField(blank=True, default=dict)),
                ("reason", models.TextField(blank=True, default="")),
                ("detail", models.JSONField(blank=True, default=dict)),
                (
                    "operation",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="leasequeue.bulkoperation",
                    ),
                ),
            ],
            options={
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="SavedFilter",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("owner", models.CharField(max_length=64)),
                ("owner_name", models.CharField(blank=True, default="", max_length=255)),
                ("shared", models.BooleanField(default=False)),
                ("query", models.TextField(help_text="the filter as a query string")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="DeadLetter",
            fields=[],
            options={
                "verbose_name": "dead letter",
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("leasequeue.job",),
        ),
        migrations.AlterModelOptions(
            name="job",
            options={
                "permissions": [
                    ("view_payload", "Can see the payload of jobs"),
                    ("retry_job", "Can retry dead letters"),
                    ("redrive_job", "Can redrive dead letters to another queue"),
                    ("discard_job", "Can discard dead letters"),
                    ("edit_job", "Can edit the payload of a dead letter and retry it"),
                    ("release_job", "Can release leased jobs"),
                    ("cancel_job", "Can cancel jobs that nobody has started"),
                ]
            },
        ),
        migrations.AlterModelOptions(
            name="queue",
            options={
                "permissions": [
                    ("pause_queue", "Can pause and resume queues"),
                    ("purge_queue", "Can remove all jobs of a queue"),
                ]
            },
        ),
        migrations.AlterModelOptions(
            name="worker",
            options={"permissions": [("stop_worker", "Can ask workers to stop")]},
        ),
        migrations.AddIndex(
            model_name="bulkoperation",
            index=models.Index(
                condition=models.Q(("state__in", ("pending", "running", "paused"))),
                fields=["id"],
                name="leasequeue_operation_active",
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkoperation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ("pending", "running", "paused"))),
                fields=("project", "queue", "kind"),
                name="leasequeue_operation_one_active",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkoperation",
            constraint=models.CheckConstraint(
                condition=models.Q(("rate__isnull", True), ("rate__gt", 0), _connector="OR"),
                name="leasequeue_operation_rate",
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkoperation",
            constraint=models.CheckConstraint(
                condition=models.Q(("jitter_ms__range", (0, 86400000))), name="leasequeue_operation_jitter"
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkoperation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "redrive"), _negated=True), ("target__isnull", False), _connector="OR"
                ),
                name="leasequeue_operation_target",
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkoperation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "discard"), _negated=True),
                    models.Q(("reason", ""), _negated=True),
                    _connector="OR",
                ),
                name="leasequeue_operation_reason",
            ),
        ),
        migrations.AddIndex(
            model_name="savedfilter",
            index=models.Index(
                condition=models.Q(("shared", True)), fields=["name"], name="leasequeue_savedfilter_shared"
            ),
        ),
        migrations.AddConstraint(
            model_name="savedfilter",
            constraint=models.UniqueConstraint(fields=("owner", "name"), name="leasequeue_savedfilter_name"),
        ),
        migrations.AddIndex(
            model_name="operatoraction",
            index=models.Index(fields=["username", "-id"], name="leasequeue_action_user"),
        ),
        migrations.AddIndex(
            model_name="operatoraction",
            index=models.Index(fields=["queue", "-id"], name="leasequeue_action_queue"),
        ),
        migrations.AddIndex(
            model_name="operatoraction",
            index=models.Index(fields=["action", "-id"], name="leasequeue_action_action"),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="operatoraction",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = 'leasequeue_action_append_only', MESSAGE = 'the audit is append-only; maintenance passes with pgtrigger.ignore(\"leasequeue.OperatorAction:append_only\")';",
                    hash="a0641bdefeb45dcff360b458a476ec7cd5199fc4",
                    ignore_func_name="_pgtrigger_should_ignore",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_8f605",
                    table="leasequeue_operatoraction",
                    when="BEFORE",
                ),
            ),
        ),
    ]

"""What the HTTP doors remember: topics beyond their live records, API keys, keyed writes, claims that wait together.

New tables only: nothing that runs is touched. The waiters are unlogged (they live for one coalescing window).
"""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

STORAGE = """
ALTER TABLE leasequeue_claimwaiter SET UNLOGGED;
ALTER TABLE leasequeue_claimwaiter SET (
    fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000
);
ALTER TABLE leasequeue_topicstate SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500
);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("leasequeue", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="TopicState",
            fields=[
                (
                    "queue",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="leasequeue.queue",
                    ),
                ),
                ("head_seq", models.BigIntegerField(db_default=0, default=0)),
                ("last_write_at", models.DateTimeField(null=True)),
                ("gap_from", models.BigIntegerField(null=True)),
                ("gap_to", models.BigIntegerField(null=True)),
                ("gap_count", models.BigIntegerField(db_default=0, default=0)),
                ("gap_reason", models.CharField(max_length=8, null=True)),
                ("records", models.BigIntegerField(null=True)),
                ("bytes", models.BigIntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(help_text="Who uses it, and for what.", max_length=128)),
                ("prefix", models.CharField(editable=False, max_length=16, unique=True)),
                ("digest", models.CharField(editable=False, max_length=64)),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(
                            choices=[
                                ("read", "read: state, list, diff, watch"),
                                ("write", "write: append records, ack, nack, extend"),
                                ("delete", "delete: topics and records"),
                                ("admin", "admin: create and configure topics"),
                            ],
                            max_length=16,
                        ),
                        default=list,
                        size=None,
                    ),
                ),
                (
                    "topics",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=255),
                        blank=True,
                        default=list,
                        help_text="Only topics whose names begin so; empty for all.",
                        size=None,
                    ),
                ),
                ("project", models.CharField(blank=True, default="", max_length=256)),
                (
                    "rate_per_second",
                    models.PositiveIntegerField(
                        blank=True, help_text="Requests a second; empty for the API's default.", null=True
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                "verbose_name": "API key",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("scopes__contained_by", ["read", "write", "delete", "admin"])),
                        name="leasequeue_apikey_scopes",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ClaimWaiter",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("node", models.TextField()),
                ("size", models.IntegerField()),
                ("lease_ms", models.BigIntegerField(null=True)),
                ("connection", models.TextField(null=True)),
                ("joined_at", models.DateTimeField()),
                ("closes_at", models.DateTimeField()),
                ("dealt_at", models.DateTimeField(null=True)),
                ("claim", models.BigIntegerField(null=True)),
                (
                    "queue",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="leasequeue.queue",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("dealt_at__isnull", True)),
                        fields=["queue", "id"],
                        name="leasequeue_waiter_open",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("key", models.TextField(db_collation="C")),
                (
                    "seqs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                (
                    "queue",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="leasequeue.queue",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["expires_at"], name="leasequeue_idempotency_expires")],
                "constraints": [models.UniqueConstraint(fields=("queue", "key"), name="leasequeue_idempotency_key")],
            },
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]

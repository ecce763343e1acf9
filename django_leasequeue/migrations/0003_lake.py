"""The lake: consumers of the lease log, archived slices, committed writes, the stage of the sink, the newest figures."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leasequeue", "0002_http"),
    ]

    operations = [
        migrations.CreateModel(
            name="LakeConsumer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, unique=True)),
                ("txid", models.BigIntegerField(default=0)),
                ("event", models.BigIntegerField(default=0)),
                ("horizon", models.BigIntegerField(default=0)),
                ("registered_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("moved_at", models.DateTimeField()),
                ("overtaken_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name="LakeSlice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("low", models.BigIntegerField(unique=True)),
                ("high", models.BigIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[("planned", "planned"), ("verified", "verified"), ("pruned", "pruned")],
                        default="planned",
                        max_length=8,
                    ),
                ),
                ("attempt", models.CharField(max_length=32)),
                ("path", models.TextField()),
                ("files", models.JSONField(default=list)),
                ("rows", models.BigIntegerField(null=True)),
                ("sums", models.JSONField(null=True)),
                ("min_txid", models.BigIntegerField(null=True)),
                ("max_txid", models.BigIntegerField(null=True)),
                ("first_at", models.DateTimeField(null=True)),
                ("last_at", models.DateTimeField(null=True)),
                ("planned_at", models.DateTimeField()),
                ("verified_at", models.DateTimeField(null=True)),
                ("pruned_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="LakeFigure",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("project", models.CharField(blank=True, default="", max_length=256)),
                ("queue", models.CharField(max_length=255)),
                ("hour", models.DateTimeField()),
                ("figures", models.JSONField()),
                ("computed_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "queue", "hour"), name="leasequeue_lakefigure_hour")
                ],
            },
        ),
        migrations.CreateModel(
            name="LakeStage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("part", models.UUIDField()),
                ("staged_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("queue", models.TextField()),
                ("key", models.TextField(db_collation="C", null=True)),
                ("name", models.TextField(null=True)),
                ("tag", models.TextField(null=True)),
                ("priority", models.IntegerField(null=True)),
                ("data", models.JSONField(null=True)),
                ("meta", models.JSONField(null=True)),
                ("run_at", models.DateTimeField(null=True)),
                ("ttl_ms", models.BigIntegerField(null=True)),
                ("result_ttl_ms", models.BigIntegerField(null=True)),
                ("max_deliveries", models.IntegerField(null=True)),
                ("source_seq", models.BigIntegerField(null=True)),
            ],
            options={
                "indexes": [models.Index(fields=["part"], name="leasequeue_lakestage_part")],
            },
        ),
        migrations.CreateModel(
            name="LakeWrite",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("write_id", models.CharField(max_length=200)),
                ("batch", models.BigIntegerField(default=-1)),
                ("committed_at", models.DateTimeField()),
                ("staged", models.BigIntegerField()),
                ("enqueued", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("write_id", "batch"), name="leasequeue_lakewrite_once")
                ],
            },
        ),
        # What is on its way from Spark is written again after a crash: it needs no write-ahead log.
        migrations.RunSQL("ALTER TABLE leasequeue_lakestage SET UNLOGGED", migrations.RunSQL.noop),
    ]

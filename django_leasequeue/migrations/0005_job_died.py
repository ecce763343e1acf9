"""The index of dead letters by time, made while the queues go on.

Each statement is by itself, and the whole may be run again after it was broken off: an index that an interrupted build left
behind is invalid, and is made anew. The build waits for transactions that are older than it, and blocks nobody: a lock
timeout would only make it fail beside a long report.
"""

from django.db import migrations, models
from django.db.models import Q

DROP = "DROP INDEX CONCURRENTLY IF EXISTS leasequeue_job_died"
CREATE = """
CREATE INDEX CONCURRENTLY leasequeue_job_died ON leasequeue_job (queue_id, dead_at, seq) WHERE dead_at IS NOT NULL
"""


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("leasequeue", "0004_triage"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(["SET lock_timeout = 0", "SET statement_timeout = 0"], migrations.RunSQL.noop),
                migrations.RunSQL([DROP], migrations.RunSQL.noop),
                migrations.RunSQL([CREATE], [DROP]),
                migrations.RunSQL(["RESET lock_timeout", "RESET statement_timeout"], migrations.RunSQL.noop),
            ],
            state_operations=[
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        fields=["queue", "dead_at", "seq"],
                        name="leasequeue_job_died",
                        condition=Q(dead_at__isnull=False),
                    ),
                ),
            ],
        ),
    ]

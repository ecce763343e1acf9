"""The index of dead letters by group in the full order of its pages (``seq`` last); made while the queues go on.

Each statement is by itself, and the whole may be run again after it was broken off: an index that an interrupted build left
behind is invalid, and is made anew. A build waits for transactions that are older than it, and blocks nobody: a lock
timeout would only make it fail beside a long report. The index is there under its name all the time but for an instant.
"""

from django.db import migrations, models
from django.db.models import Q

DROP_NEXT = "DROP INDEX CONCURRENTLY IF EXISTS leasequeue_job_dead_next"
WITH_SEQ = """
CREATE INDEX CONCURRENTLY leasequeue_job_dead_next ON leasequeue_job (queue_id, fingerprint, dead_at, seq)
WHERE dead_at IS NOT NULL
"""
WITHOUT_SEQ = """
CREATE INDEX CONCURRENTLY leasequeue_job_dead_next ON leasequeue_job (queue_id, fingerprint, dead_at)
WHERE dead_at IS NOT NULL
"""
REPLACE = [
    "DROP INDEX CONCURRENTLY IF EXISTS leasequeue_job_dead",
    "ALTER INDEX leasequeue_job_dead_next RENAME TO leasequeue_job_dead",
]
WITHOUT_TIMEOUTS = ["SET lock_timeout = 0", "SET statement_timeout = 0"]
WITH_TIMEOUTS = ["RESET lock_timeout", "RESET statement_timeout"]


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("leasequeue", "0006_lake_body"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(WITHOUT_TIMEOUTS, WITH_TIMEOUTS),
                migrations.RunSQL([DROP_NEXT, WITH_SEQ, *REPLACE], [DROP_NEXT, WITHOUT_SEQ, *REPLACE]),
                migrations.RunSQL(WITH_TIMEOUTS, WITHOUT_TIMEOUTS),
            ],
            state_operations=[
                migrations.RemoveIndex(model_name="job", name="leasequeue_job_dead"),
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        fields=["queue", "fingerprint", "dead_at", "seq"],
                        name="leasequeue_job_dead",
                        condition=Q(dead_at__isnull=False),
                    ),
                ),
            ],
        ),
    ]

"""``get_result`` finds its row by an index, whatever else is in the tables."""

import pytest
from django.db import connection

from django_leasequeue.sql import statement
from tests.tasks import samples


@pytest.mark.slow
@pytest.mark.plans
@pytest.mark.django_db
@pytest.mark.parametrize("analyzed", [False, True])
def test_a_result_is_found_by_its_key(analyzed: bool) -> None:
    results = samples.echo.enqueue_many((number,) for number in range(20_000))
    with connection.cursor() as cursor:
        # Every second job is finished: its key and its result are found as well.
        cursor.execute("DELETE FROM leasequeue_ready WHERE seq % 2 = 0")
        cursor.execute(
            "INSERT INTO leasequeue_jobresult (seq, queue_id, finished_at, expires_at, deliveries, state)"
            " SELECT seq, queue_id, created_at, created_at + interval '1 day', 1, 1 FROM leasequeue_job"
            " WHERE seq % 2 = 0"
        )
        if analyzed:
            cursor.execute("ANALYZE leasequeue_job, leasequeue_ready, leasequeue_jobresult")
        cursor.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) {statement('task_result')}",
            {"now": None, "project": "", "key": results[7].id},
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "leasequeue_job_key" in plan
    for table in ("job", "ready", "jobresult"):
        assert f"Seq Scan on leasequeue_{table}" not in plan

"""``get_result`` finds its row by an index, whatever else is in the tables."""

from __future__ import annotations

import pytest
from django.db import connection

from django_leasequeue.sql import statement
from tests.tasks import samples


@pytest.mark.plans
@pytest.mark.django_db
@pytest.mark.parametrize("analyzed", [False, True])
def test_a_result_is_found_by_its_key(analyzed: bool) -> None:
    results = samples.echo.enqueue_many((number,) for number in range(20_000))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO leasequeue_jobresult (seq, queue_id, created_at, finished_at, expires_at, deliveries, rank,"
            " state, key, name) SELECT -seq, queue_id, created_at, created_at, created_at + interval '1 day', 1, 0, 1,"
            " 'old-' || seq, name FROM leasequeue_job"
        )
        if analyzed:
            cursor.execute("ANALYZE leasequeue_job, leasequeue_jobresult")
        cursor.execute(
            f"EXPLAIN (COSTS OFF) {statement('task_result')}", {"now": None, "project": "", "key": results[7].id}
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "leasequeue_job_key" in plan
    assert "leasequeue_result_key" in plan
    assert "Seq Scan on leasequeue_job" not in plan

"""How long each page takes over large tables: printed, not asserted.

ADMIN_SPEED=1 pytest tests/admin/test_speed.py -s        (1,000,000 dead letters, 10,000,000 events; minutes)
ADMIN_SPEED=0.01 pytest tests/admin/test_speed.py -s     (a hundredth of it)
"""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.upkeep import partitions
from tests.engine.helpers import make
from tests.support.sampling import sample

SCALE = float(os.environ.get("ADMIN_SPEED") or 0)
#: Runs of a page: the first finds caches cold.
RUNS = 5
#: Jobs of one row of the log.
PER_EVENT = 20

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SCALE, reason="a measurement: ADMIN_SPEED=1 pytest tests/admin/test_speed.py -s"),
]

EVENTS = """
INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, node, claim, name, seqs, waited, ran)
SELECT 1000 + g, o.at, %(queues)s[1 + CASE WHEN g %% 10 < 6 THEN 0 ELSE g %% 60 END], s * 20 + 1, s * 20 + 20,
    (ARRAY[1, 2, 5])[1 + g %% 3], 'host.' || s %% 20, s, 'app.task', q.seqs, CASE WHEN g %% 3 = 1 THEN q.waits END,
    CASE WHEN g %% 3 = 2 THEN q.waits END
FROM generate_series(%(low)s::bigint, %(high)s::bigint - 1) AS g CROSS JOIN LATERAL (
    SELECT g / 3 AS s, CASE WHEN g < %(half)s
        THEN clock_timestamp() - interval '7 days' + g::float8 * (interval '167 hours' / %(half)s)
        ELSE clock_timestamp() - interval '1 hour' + (g - %(half)s)::float8 * (interval '1 hour' / %(half)s)
        END AS at) o
CROSS JOIN LATERAL (
    SELECT array_agg(s * 20 + n) AS seqs, array_agg((s %% 1000 * 10 + 0 * n)::int) AS waits
    FROM generate_series(1, 20) AS n) q
"""

LETTERS = """
WITH j AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, rank, name, data)
    SELECT n, %(queue)s, now() - interval '20 days', 0, 'app.task', json_build_object('n', n)
    FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) AS n
), d AS (
    INSERT INTO leasequeue_deadletter (seq, queue_id, dead_at, deliveries, in_place, error_type, error, fingerprint)
    SELECT n, %(queue)s, now() - n * interval '1 ms', 5, true, 'ValueError', 'boom ' || n, 'print-' || n %% 200
    FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) AS n
)
INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
SELECT n, %(queue)s, now(), 1, 'x', 'ValueError', 'boom ' || n, repeat('a line of code ' || n, 40), 'print-' || n %% 200
FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) AS n
"""


@pytest.fixture
def large(transactional_db: None, settings: Any) -> Iterator[tuple[list[int], int]]:
    """Queue ids and the number of a dead letter."""
    events, letters, first = int(10_000_000 * SCALE / PER_EVENT), int(1_000_000 * SCALE), 100_000_000
    settings.LEASEQUEUE = {"EVENT_PARTITIONS_AHEAD": 8}
    queues = [make(f"q{number:02}", preset="django") for number in range(60)]
    with connect("default") as other:
        partitions.maintain(other)
        for low in range(0, events, 500_000):
            high = min(low + 500_000, events)
            other.execute(EVENTS, {"queues": queues, "low": low, "high": high, "half": max(events // 2, 1)})
        other.execute(LETTERS, {"queue": queues[0], "count": letters, "first": first})
        other.execute("VACUUM ANALYZE leasequeue_leaseevent, leasequeue_job, leasequeue_deadletter, leasequeue_attempt")
    sample()
    yield queues, first + letters // 2
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE leasequeue_leaseevent, leasequeue_job, leasequeue_deadletter, leasequeue_attempt")


def test_how_long_each_page_takes(large: tuple[list[int], int], capsys: pytest.CaptureFixture[str]) -> None:
    queues, letter = large
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    lines = []
    for name, args, query in (
        ("overview", [], {}), ("queue_changelist", [], {}), ("queue_change", [queues[0]], {}),
        ("queue_change", [queues[1]], {}), ("queue_options", [queues[0]], {}),
        ("job_changelist", [], {"queue": queues[0], "state": "dead"}), ("job_change", [letter], {}),
        ("job_change", [1_000], {}), ("worker_changelist", [], {}), ("deadletters", [], {}),
        ("deadletters", [], {"queue": "q00"}), ("deadletters", [], {"sort": "largest"}),
        ("tasks", [], {}), ("tasks", [], {"range": "7 d"}), ("overview", [], {"range": "7 d"}),
        ("job_changelist", [], {"state": "any", "text": "no such error"}),
        ("deadletters_list", [], {}), ("deadletters_list", [], {"queue": "q00", "fingerprint": "print-7"}),
        ("bulkoperation_changelist", [], {}), ("operatoraction_changelist", [], {}),
    ):  # fmt: skip
        url = reverse(f"admin:leasequeue_{name}", args=args, query=query)
        took = []
        for _ in range(RUNS):
            began = time.perf_counter()
            assert client.get(url).status_code == 200
            took.append((time.perf_counter() - began) * 1000)
        lines.append(f"{name:20} {query!s:45} first {took[0]:7.0f} ms, then {sorted(took[1:])[len(took) // 2]:6.0f} ms")
    with capsys.disabled():
        print(f"\n{SCALE * 1_000_000:,.0f} dead letters, {SCALE * 10_000_000:,.0f} events of jobs", *lines, sep="\n")

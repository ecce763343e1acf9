"""The stream looks at the rows of its batch alone, wherever in the lease log they are."""

from collections.abc import Iterator

import psycopg
import pytest

from django_leasequeue.engine.pool import connect
from django_leasequeue.sql import statement

from .filling import SUM_UP
from .regimes import explain

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

#: Rows of the log, and of one transaction; the jobs of a row.
ROWS, PER_TRANSACTION, JOBS = 200_000, 20, 3
#: Transactions of a batch in the middle of the log, and the rows that they made.
FIRST, LAST = 4_000, 4_999
BATCH = (LAST - FIRST) * PER_TRANSACTION
#: Rows of the ranges of pages at both ends, which the index cannot tell apart.
AROUND = 2 * 8 * 70

FILL = """
INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, node, seqs)
SELECT 1000 + n / %(per)s, now() - interval '1 hour' + n * interval '10 ms', n %% 3, n * %(jobs)s,
    (n + 1) * %(jobs)s - 1, 2, 'holder', ARRAY(SELECT generate_series(n * %(jobs)s, (n + 1) * %(jobs)s - 1))
FROM generate_series(0::bigint, %(rows)s - 1) AS n
"""


@pytest.fixture
def log() -> Iterator[psycopg.Connection]:
    """A connection whose transaction holds a large log."""
    with connect("default") as connection, connection.transaction(force_rollback=True):
        connection.execute(FILL, {"rows": ROWS, "per": PER_TRANSACTION, "jobs": JOBS})
        connection.execute(SUM_UP)
        # As the lake's connections are: the planner is the host's, and knows the log (autovacuum looks at it).
        for setting in ("enable_seqscan = on", "enable_bitmapscan = on", "plan_cache_mode = auto"):
            connection.execute(f"SET LOCAL {setting}")
        connection.execute("ANALYZE leasequeue_leaseevent")
        yield connection


#: Statements, their own parameters, the rows that they may look at, and their answers.
LOOKS: tuple[tuple[str, dict[str, int], int, int], ...] = (
    ("lake/count", {}, BATCH + AROUND, BATCH * JOBS),
    ("lake/nth", {"most": BATCH * JOBS // 2 + 1}, BATCH + AROUND, 4_500), ("lake/any", {}, 1 + AROUND, True),
)  # fmt: skip


def test_a_batch(log: psycopg.Connection) -> None:
    assert ROWS > 5 * (BATCH + AROUND)
    for name, parameters, rows, answer in LOOKS:
        place = {"txid": FIRST, "id": 2**62, "last_txid": LAST, "last_id": 2**62, **parameters}
        plan = explain(log, name, place)
        # What reads a partition as a whole reads it to its end: none that holds an event.
        assert "leasequeue_leaseevent_p0" not in plan.whole_tables, plan.text()
        assert plan.table_rows() <= rows, plan.text()
        told = psycopg.ClientCursor(log).execute(statement(name), place).fetchone()
        assert told[0] == answer, name

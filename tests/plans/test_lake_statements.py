"""The stream looks at the events of its batch alone, wherever in the lease log they are."""

from __future__ import annotations

import pytest

from .conftest import EVENTS, PER_TRANSACTION
from .explain import Explaining, explain

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

#: Transactions of a batch in the middle of the log, and the events that they made.
FIRST, LAST = 4_000, 4_999
BATCH = (LAST - FIRST) * PER_TRANSACTION
#: Events of the ranges of pages at both ends, which the index cannot tell apart.
AROUND = 2 * 8_000


@pytest.mark.parametrize("explaining", ["host"], indirect=True)
@pytest.mark.parametrize(
    ("name", "parameters", "rows"),
    [
        ("lake/count", {}, BATCH + AROUND),
        ("lake/nth", {"skip": BATCH // 2}, BATCH + AROUND),
        ("lake/any", {}, 1 + AROUND),
    ],
)
def test_a_batch(events: Explaining, name: str, parameters: dict[str, int], rows: int) -> None:
    place = {"txid": FIRST, "id": 2**62, "last_txid": LAST, "last_id": 2**62, **parameters}
    # As the lake's connections are: the planner is the host's, and knows the log (autovacuum looks at what comes in).
    for setting in ("enable_seqscan", "enable_bitmapscan"):
        events.connection.execute(f"SET LOCAL {setting} = on")
    events.connection.execute("SET LOCAL plan_cache_mode = auto")
    events.connection.execute("ANALYZE leasequeue_leaseevent")
    plan = explain(events.connection, name, place)
    assert 2 * EVENTS > 5 * (BATCH + AROUND)
    # What reads a partition as a whole reads it to its end: none that holds an event.
    assert "leasequeue_leaseevent_p0" not in plan.whole_tables, plan.text()
    assert plan.table_rows() <= rows, plan.text()

"""One clock for all figures and rules: the newest event that was read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from django_leasequeue.spark import bronze, pipeline
from django_leasequeue.spark.layout import TABLES, Lake
from django_leasequeue.spark.page import html
from tests.engine.helpers import make, put
from tests.spark.conftest import Source
from tests.spark.helpers import Database, at, event

pytestmark = pytest.mark.django_db(transaction=True)
OLD = at(-10 * 365 * 86_400)


def rows(lake: Lake, path: str, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in lake.read(path).select(*names).collect()]


def test_the_newest_event_is_the_clock_of_all_tables(lake: Lake, source: Source, database: Database) -> None:
    """Waiting jobs are read live: days after the newest event that readers may have."""
    make("work", log_enqueued=False)
    event(database, seq=900, occurred_at=OLD)
    event(database, seq=900, kind=2, node="a", waited=0, occurred_at=OLD)
    event(database, seq=900, kind=3, node="a", occurred_at=OLD + timedelta(minutes=5))
    put(3)
    pipeline.run(lake, source.options)
    newest = OLD + timedelta(minutes=5)
    assert pipeline.newest_event(lake) == newest
    assert [at for (at,) in rows(lake, lake.gold("span"), "newest_at")] == [newest.replace(tzinfo=None)]
    for name in ("backlog", "throughput", "use", "in_flight", "queue_latency"):
        assert {hour for (hour,) in rows(lake, lake.gold(name), "hour")} == {OLD.replace(tzinfo=None)}, name
    assert sum(level for (level,) in rows(lake, lake.gold("backlog"), "level")) == 4
    # What happens later moves it on, and jobs are where they came.
    event(database, seq=900, kind=5, node="a", ran=5, occurred_at=at(20 * 365 * 86_400))
    pipeline.run(lake, source.options)
    assert pipeline.newest_event(lake) == at(20 * 365 * 86_400)
    assert [hour.year > OLD.year for hour, came in rows(lake, lake.gold("backlog"), "hour", "came") if came == 3] == [
        True
    ]


def test_what_came_since_a_transaction_that_is_open_for_six_hours_is_no_clock(
    lake: Lake, source: Source, database: Database, test_dsn: str
) -> None:
    """Nothing that came meanwhile is read, also no job that waits: the head of the page says how far behind it is."""
    make("work", log_enqueued=False)
    event(database, seq=900, occurred_at=OLD)
    event(database, seq=900, kind=2, node="a", waited=0, occurred_at=OLD)

    def clocks() -> set[object]:
        bronze.ingest(lake, source.options)
        pipeline.refine(lake)
        pipeline.take_waiting(lake, source.options)
        with pipeline.tables(lake) as found:
            (span,) = found["span"].toArrow().to_pylist()
        return {pipeline.newest_event(lake), span["newest_at"]}

    later = OLD + timedelta(hours=6, minutes=10)
    with psycopg.connect(test_dsn) as other:
        other.execute("SELECT pg_current_xact_id()")
        event(database, seq=900, kind=5, node="a", ran=5, occurred_at=later)
        put(3)
        assert clocks() == {OLD}
        span = {"first_at": OLD, "newest_at": OLD}
        page = html({**{name: [] for name in TABLES}, "span": [span], "run": [{"at": later}]}, now=later)
        assert "6 hours 10 minutes before the lake was brought up to date" in page
        assert "an open transaction holds readers back" in page
    assert clocks() == {later}

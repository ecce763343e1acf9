"""The pages of jobs, queues and workers read a bounded piece of the large tables, however much is in them."""

from __future__ import annotations

import pytest

from django_leasequeue import engine
from django_leasequeue.admin import reading
from django_leasequeue.engine.stats import counts_by_id

from .conftest import EVENTS, FIRST_SEQ, Tables
from .explain import Explaining, Plan

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]


def check(plan: Plan, *, rows: int) -> None:
    assert plan.whole_tables == [], plan.text()
    assert plan.table_rows() <= rows, plan.text()


def test_a_job_and_its_result(explaining: Explaining, tables: Tables) -> None:
    found = explaining.run(reading.steady(reading.read_job(tables.start["busy-0-1 hour"])))
    assert found is not None
    check(explaining.plan("admin/job"), rows=1)
    assert explaining.run(reading.steady(reading.read_job(900_000_001))) is not None
    check(explaining.plan("admin/ended"), rows=1)


def test_events_of_a_job(events: Explaining) -> None:
    found = events.run(reading.steady(reading.read_events(FIRST_SEQ + 5_000), log=True))
    assert len(found) == 3
    # The rows of the ranges of 32 pages that the index names.
    check(events.plan("admin/job_events"), rows=20_000)


def test_rates_of_a_busy_hour_are_estimated_from_a_part(events: Explaining, tables: Tables) -> None:
    found = events.run(reading.steady(reading.read_rates(tables.ids["busy"], bucket=600, size=500), log=True))
    (whole,) = [rate for rate in found if rate.queue_id is None and rate.bucket is None]
    assert whole.factor > 10
    assert whole.enqueued == pytest.approx(EVENTS / 3 * 2 / 3, rel=0.2)
    # Twice what is asked for, and for each bucket the rows of the ranges around its beginning.
    check(events.plan("admin/event_rates"), rows=2 * 3_000 + 6 * 8_000)


def test_counts_of_many_queues(explaining: Explaining, tables: Tables) -> None:
    found = explaining.run(reading.steady(counts_by_id(list(tables.ids.values()), cap=1_000)))
    assert {each.ready for each in found.values()} >= {0}
    # Six kinds of figures, each up to the cap; claims up to twice the cap.
    check(explaining.plan("queue_counts"), rows=len(tables.ids) * 9 * 1_001)


def test_health_of_queues(explaining: Explaining, tables: Tables) -> None:
    found = explaining.run(reading.steady(reading.read_health(list(tables.ids.values()))))
    assert len(found) == len(tables.ids)
    check(explaining.plan("admin/queue_health"), rows=len(tables.ids) * (220 + 20 * 200))


def test_dead_jobs_of_a_queue(explaining: Explaining, tables: Tables) -> None:
    explaining.run(reading.steady(engine.list_jobs("busy", "dead", size=50, payload=False)))
    check(explaining.plan("list_dead"), rows=200)
    explaining.run(reading.steady(engine.list_jobs("busy", "dead", size=50, payload=False, fingerprint="print-7")))
    check(explaining.plan("list_dead", 1), rows=400)


def test_a_search(explaining: Explaining, tables: Tables) -> None:
    seq = tables.start["busy-0-1 hour"]
    explaining.run(reading.steady(reading.find_jobs(seq, f"busy-{seq - seq % 4 + 4}")))
    check(explaining.plan("admin/find_jobs"), rows=10)


def test_lists_of_queues_samples_and_workers(explaining: Explaining, tables: Tables) -> None:
    explaining.run(reading.steady(reading.read_queues(None, "", None, 26)))
    explaining.run(reading.steady(reading.read_samples(tables.ids["busy"])))
    explaining.run(reading.steady(reading.read_workers()))
    for name in ("admin/queues", "admin/samples", "admin/workers"):
        check(explaining.plan(name), rows=0)

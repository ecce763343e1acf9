"""The pages of jobs, queues and workers read a bounded piece of the large tables, however much is in them."""

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection as django_connection
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue import engine
from django_leasequeue.admin import rates, reading
from django_leasequeue.engine import clock
from django_leasequeue.engine.plans import steady
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.queues.stats import counts_by_id
from django_leasequeue.reaper.concerns import read_health

from .explain import Explaining, Plan
from .filling import AGAIN, BATCHED, DEAD, DONE, FRESH, IDS, LATER, LEASED, NOW, RECORDS, fill, fill_queues

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

#: Live claims of the queue "busy": what is looked through for a job that is leased.
CLAIMS = 20_050


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock(), connect("default") as connection:
        fill_queues(connection)
        fill(connection)
        connection.execute("ANALYZE")
        yield
        call_command("flush", verbosity=0, interactive=False)
        django_connection.close()


@pytest.fixture(params=["own", "host"])
def explaining(
    request: pytest.FixtureRequest, filled: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Explaining]:
    """An executor that explains; its transaction is rolled back."""
    with django_db_blocker.unblock(), clock.hold(clock.Clock(NOW)), connect("default") as connection:
        if request.param == "host":
            connection.execute("SET enable_seqscan = on")
            connection.execute("SET enable_bitmapscan = on")
            connection.execute("SET plan_cache_mode = auto")
        with connection.transaction(force_rollback=True):
            yield Explaining(connection)


def check(plan: Plan, *, rows: int) -> None:
    assert plan.whole_tables == [], plan.text()
    assert plan.table_rows() <= rows, plan.text()


@pytest.mark.parametrize(
    ("seq", "state", "rows"),
    [
        (FRESH + 7, "ready", 20), (AGAIN + 7, "ready", 20), (LATER + 7, "delayed", 20), (DEAD + 7, "dead", 20),
        (RECORDS + 7, "record", 20), (LEASED + 7, "leased", CLAIMS + 20), (BATCHED + 7, "leased", CLAIMS + 20),
    ],
)  # fmt: skip
def test_a_live_job(explaining: Explaining, seq: int, state: str, rows: int) -> None:
    found = explaining.run(steady(reading.read_job(seq)))
    assert (found.state, found.live) == (state, True)
    check(explaining.plan("admin/job"), rows=rows)


def test_a_finished_job(explaining: Explaining) -> None:
    found = explaining.run(steady(reading.read_job(DONE + 7)))
    assert found.state == "completed"
    check(explaining.plan("admin/job"), rows=CLAIMS + 20)
    check(explaining.plan("admin/ended"), rows=10)


def test_events_of_a_job(explaining: Explaining) -> None:
    found = explaining.run(steady(reading.read_events(FRESH + 40_000), log=True))
    assert 1 <= len(found) <= 10
    # The rows of the ranges of pages that the index names.
    check(explaining.plan("admin/job_events"), rows=5_000)


def test_rates_of_a_busy_hour_are_of_as_many_rows_as_one_look_reads(explaining: Explaining) -> None:
    found = explaining.run(steady(rates.read_rates(IDS["busy"], seconds=3_600, bucket=600, size=5_000), log=True))
    assert found.reach.whole is False
    assert 0 < found.of(None).claimed < 10 * 5_000
    # The rows are read once to be counted and once for their waits, those at both ends of the time as well.
    check(explaining.plan("admin/event_rates"), rows=2 * 5_000 + 2_000)


def test_rates_of_tasks_are_of_as_many_rows_as_one_look_reads(explaining: Explaining) -> None:
    found = explaining.run(steady(rates.read_tasks(seconds=3_600, size=5_000), log=True))
    assert found.reach.whole is False
    assert len(found.tasks) == 7
    check(explaining.plan("admin/task_rates"), rows=2 * 5_000 + 2_000 + 7 * 2 * 500)


def test_counts_of_many_queues(explaining: Explaining) -> None:
    found = explaining.run(steady(counts_by_id(list(IDS.values()), cap=1_000)))
    assert {each.ready for each in found.values()} >= {0}
    # Eight kinds of figures, each up to the cap; claims up to twice the cap.
    check(explaining.plan("queue_counts"), rows=len(IDS) * 11 * 1_001)


def test_health_of_queues(explaining: Explaining) -> None:
    found = explaining.run(steady(read_health(list(IDS.values()))))
    assert len(found) == len(IDS)
    assert found[IDS["over"]].overdue is not None
    check(explaining.plan("queue_health"), rows=len(IDS) * 210)


def test_dead_jobs_of_a_queue(explaining: Explaining) -> None:
    page = explaining.run(steady(engine.list_jobs("morgue", "dead", size=50, payload=False)))
    assert len(page.jobs) == 50
    check(explaining.plan("list_dead"), rows=400)
    explaining.run(steady(engine.list_jobs("morgue", "dead", size=50, payload=False, fingerprint="print-7")))
    check(explaining.plan("list_dead", 1), rows=400)


def test_a_search(explaining: Explaining) -> None:
    found = explaining.run(steady(reading.find_jobs(FRESH + 7, f"busy-{FRESH + 8}")))
    assert {(job.seq, job.state) for job in found} == {(FRESH + 7, "ready"), (FRESH + 8, "ready")}
    check(explaining.plan("admin/find_jobs"), rows=30)
    (done,) = explaining.run(steady(reading.find_jobs(None, f"busy-{DONE + 8}")))
    assert (done.seq, done.state) == (DONE + 8, "completed")
    check(explaining.plan("admin/find_jobs", 1), rows=CLAIMS + 30)

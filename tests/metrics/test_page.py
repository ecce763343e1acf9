"""The view ``/metrics``: what it says of queues, and to whom."""

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import transaction
from django.test import Client
from prometheus_client import CollectorRegistry, generate_latest

from django_leasequeue import engine
from django_leasequeue.conf import process
from django_leasequeue.engine import clock, pool
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.jobs.pausing import pause_task
from django_leasequeue.engine.jobs.steps import Lease, suspend_job
from django_leasequeue.http.access import ALL_SCOPES, create_key
from django_leasequeue.metrics import figures
from django_leasequeue.metrics.prometheus import QueueCollector, exposition, pools
from django_leasequeue.models import LeaseEvent, Worker
from django_leasequeue.spark import consumers, slices
from django_leasequeue.spark.slices import START, Point
from tests.engine.helpers import run
from tests.metrics.scraping import Samples, samples, value
from tests.support.rows import rows
from tests.support.sampling import sample

NODE = "node"


def scrape(status: int = 200, **headers: str) -> Samples:
    answer = Client().get("/metrics", headers=headers)
    assert answer.status_code == status, answer.content
    return samples(answer.content.decode()) if status == 200 else {}


def enqueue(count: int, queue: str = "work", **given: Any) -> None:
    engine.run(engine.enqueue(queue, [engine.NewJob(**given) for _ in range(count)]))


def claim(count: int, queue: str = "work") -> list[engine.LeasedJob]:
    return engine.run(engine.claim([queue], NODE, count))


def end(jobs: list[engine.LeasedJob], ran_ms: int) -> None:
    engine.run(engine.finish([engine.Ending(job.seq, job.token, ran_ms=ran_ms) for job in jobs], NODE))


def fail(jobs: list[engine.LeasedJob]) -> None:
    failure = engine.Failure("shop.Error", "no", "", "f")
    engine.run(engine.release([engine.Release(job.seq, job.token, 0, failure) for job in jobs], NODE))


def test_depths_by_queue_and_state_and_what_lags(work: str, clock: Clock) -> None:
    enqueue(5)
    enqueue(2, delay_ms=3_600_000)
    claim(1)
    clock.advance(seconds=90)
    found = scrape()
    assert [value(found, "leasequeue_jobs", queue=work, state=s) for s in ("ready", "delayed", "dead")] == [5, 2, 0]
    assert value(found, "leasequeue_oldest_ready_age_seconds", queue=work) == 90
    # The lease of a minute is over, and nobody has ended it.
    assert value(found, "leasequeue_oldest_overdue_lease_age_seconds", queue=work) == 30
    assert value(found, "leasequeue_queue_paused", queue=work) == 0
    fail(claim(5))
    clock.advance(seconds=7)
    assert value(scrape(), "leasequeue_oldest_ready_age_seconds", queue=work) == 7, "since it is ready again"
    answer = Client().get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.content.endswith(b"# EOF\n")
    registry = CollectorRegistry()
    registry.register(QueueCollector())
    assert ("leasequeue_jobs" in generate_latest(registry).decode()) is True, "a page of the host's own"


def test_events_are_counted_exactly_and_go_on_from_scrape_to_scrape(work: str, clock: Clock) -> None:
    enqueue(10)
    assert value(scrape(), "leasequeue_job_events_total", queue=work, event="enqueued") == 10
    clock.advance(seconds=3)
    done, failing, given_back = claim(4), claim(3), claim(2)
    end(done, ran_ms=700)
    fail(failing)
    engine.run(engine.release([engine.Release(j.seq, j.token, 0) for j in given_back], NODE, unstarted=True))
    enqueue(1)
    found = scrape()
    expected = {"enqueued": 11, "claimed": 9, "completed": 4, "retried": 3, "returned": 2, "dead_lettered": 0}
    assert {e: value(found, "leasequeue_job_events_total", queue=work, event=e) for e in expected} == expected
    # The second try is the last one: dead, and not tried again.
    fail([job for job in claim(9) if job.deliveries == 2])
    found = scrape()
    for event in ("dead_lettered", "retried"):
        assert value(found, "leasequeue_job_events_total", queue=work, event=event) == 3
    assert value(found, "leasequeue_dead_lettered_total", queue=work) == 3
    assert value(found, "leasequeue_job_wait_seconds_count", queue=work) >= 9
    assert value(found, "leasequeue_job_wait_seconds_bucket", queue=work, le="2.5") == 0 + 6
    assert [value(found, "leasequeue_job_run_seconds_bucket", queue=work, le=le) for le in ("0.5", "1")] == [0, 4]
    assert value(found, "leasequeue_job_run_seconds_sum", queue=work) == pytest.approx(2.8)


def test_a_process_that_begins_later_says_the_same(work: str) -> None:
    """Each scrape may meet another process: counters must not depend on which. They begin anew with the hour."""
    enqueue(10)
    scrape()
    end(claim(4), ran_ms=20)
    went_on = scrape()
    process.forget()
    began = scrape()
    counters = {key for key in went_on if key[0].startswith(("leasequeue_job_events", "leasequeue_job_run"))}
    assert counters
    assert {key: began[key] for key in counters} == {key: went_on[key] for key in counters}
    with clock.hold(clock.Clock(datetime(2030, 1, 1, 13, 0, 1, tzinfo=UTC))):
        enqueue(1)
        assert value(scrape(), "leasequeue_job_events_total", queue=work, event="enqueued") == 1


def test_how_far_the_lake_is_behind(work: str, test_dsn: str) -> None:
    """The consumer's lag begins with what it has not read, and ends when it has read that."""
    with psycopg.connect(test_dsn, autocommit=True) as lake, clock.hold() as held:
        assert not any(name.startswith("leasequeue_lake_lag") for name, _ in scrape())
        # The oldest counts, not the row that lies first.
        held.advance(seconds=10)
        enqueue(1)
        held.advance(seconds=-10)
        enqueue(1)
        consumers.report(lake, "lake", START, 1)
        held.advance(seconds=40)
        enqueue(1)
        found = scrape()
        assert value(found, "leasequeue_lake_lag_seconds", consumer="lake") == pytest.approx(40, abs=1)
        assert value(found, "leasequeue_lake_lag_transactions", consumer="lake") >= 1
        read = LeaseEvent.objects.order_by("txid", "id")[1]
        consumers.report(lake, "lake", Point(read.txid, read.id), 1)
        assert value(scrape(), "leasequeue_lake_lag_seconds", consumer="lake") == pytest.approx(0, abs=1)
        held.advance(seconds=90)
        assert value(scrape(), "leasequeue_lake_lag_seconds", consumer="lake") == pytest.approx(90, abs=1)
        until = slices.horizon(lake).xmin
        consumers.report(lake, "lake", Point(until - 1, slices.MAX_ID), until)
        found = scrape()
        lags = [value(found, f"leasequeue_lake_{name}", consumer="lake") for name in ("lag_seconds", "given_up")]
        assert lags == [0, 0]


def test_a_transaction_that_ends_late_is_counted_once(work: str, test_dsn: str) -> None:
    """Its number is lower than those of others that were counted before."""
    with psycopg.connect(test_dsn) as slow:
        engine.ConnectionExecutor(slow).run(engine.enqueue("work", [engine.NewJob(), engine.NewJob()]))
        for count in (1, 2):
            enqueue(1)
            assert value(scrape(), "leasequeue_job_events_total", queue=work, event="enqueued") == count
        slow.commit()
    for _ in range(2):
        assert value(scrape(), "leasequeue_job_events_total", queue=work, event="enqueued") == 4


def test_labels_are_bounded(work: str, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "open"}, "METRICS": {"CACHE_SECONDS": 0, "MAX_QUEUES": 2}}
    for name in ("second", "third", "fourth"):
        engine.run(engine.create(name, preset="django"))
        enqueue(2, name)
    sample()
    found = scrape()
    queues = {dict(labels).get("queue") for _, labels in found} - {None}
    assert queues == {"work", "second", "(other)"}
    assert value(found, "leasequeue_jobs", queue="(other)", state="ready") == 4
    assert value(found, "leasequeue_job_events_total", queue="(other)", event="enqueued") == 4


def test_workers_the_reaper_and_the_horizon(work: str, test_dsn: str) -> None:
    with clock.hold() as held, psycopg.connect(test_dsn) as other:
        worker = {"host": "h", "pid": 1, "concurrency": 1, "started_at": held.now, "seen_at": held.now}
        rows(Worker).create(node="here", **worker)
        rows(Worker).create(node="leaving", state="draining", **worker)
        found = scrape()
        assert [value(found, "leasequeue_workers", state=s) for s in ("running", "draining", "gone")] == [1, 1, 0]
        assert value(found, "leasequeue_reaper_leader") == 0
        held.advance(seconds=31)
        assert value(scrape(), "leasequeue_workers", state="gone") == 2
        other.execute("SELECT pg_current_xact_id()")
        other.execute("SELECT pg_sleep(0.05)")
        assert value(scrape(), "leasequeue_horizon_age_seconds") >= 0.05


def test_a_look_answers_for_some_seconds(work: str, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "open"}, "METRICS": {"CACHE_SECONDS": 3_600}}
    assert value(scrape(), "leasequeue_jobs", queue=work, state="ready") == 0
    enqueue(1)
    assert value(scrape(), "leasequeue_jobs", queue=work, state="ready") == 0
    settings.LEASEQUEUE = {"API": {"ACCESS": "open"}, "METRICS": {"CACHE_SECONDS": 0}}
    assert value(scrape(), "leasequeue_jobs", queue=work, state="ready") == 1


def test_a_key_sees_the_queues_of_its_project(work: str, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "keys", "KEY_CACHE_SECONDS": 0}, "METRICS": {"CACHE_SECONDS": 0}}
    engine.run(engine.create("theirs", project="tenant", preset="django"))

    def queues(scopes: list[str], **rights: Any) -> set[str]:
        found = scrape(authorization=f"Bearer {create_key('test', scopes, **rights)[1]}")
        return {dict(labels)["queue"] for name, labels in found if name == "leasequeue_jobs"}

    assert queues(["metrics"]) == {"work"}
    assert queues(["metrics"], project="tenant") == {"theirs"}
    assert queues(["metrics", "projects"]) == {"work", "theirs"}
    scrape(401)
    scrape(403, authorization=f"Bearer {create_key('others', sorted(ALL_SCOPES - {'metrics', 'projects'}))[1]}")
    scrape(403, authorization=f"Bearer {create_key('narrow', ['metrics'], topics=['w'])[1]}")


def test_a_tenant_s_page_counts_its_own_workers_and_suspended_jobs(work: str, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "keys", "KEY_CACHE_SECONDS": 0}, "METRICS": {"CACHE_SECONDS": 0}}
    engine.run(engine.create("theirs", project="tenant", preset="django"))
    with clock.hold() as held:
        worker = {"host": "h", "pid": 1, "concurrency": 1, "started_at": held.now, "seen_at": held.now}
        for project, count in (("", 3), ("tenant", 1), ("other", 5)):
            for number in range(count):
                rows(Worker).create(node=f"{project}-{number}", project=project, **worker)
        for project, queue in (("", work), ("tenant", "theirs")):
            engine.run(engine.enqueue(queue, [engine.NewJob()] * (2 if project else 1), project=project))
            for job in engine.run(engine.claim(queue, NODE, 9, project=project)):
                engine.run(suspend_job(Lease(queue, job.seq, job.token, NODE, project), "nap", delay_ms=60_000))
        held.advance(seconds=5)

        def seen(*scopes: str, **rights: Any) -> list[float | None]:
            found = scrape(authorization=f"Bearer {create_key('test', scopes, **rights)[1]}")
            names = ("leasequeue_suspended_jobs", "leasequeue_suspended_age_seconds")
            workers = value(found, "leasequeue_workers", state="running")
            return [workers, *(value(found, name, kind="sleep") for name in names)]

        assert seen("metrics", project="tenant") == [1, 2, 5]
        assert seen("metrics", project="nobody") == [0, 0, 0]
        assert seen("metrics", "projects") == [9, 3, 5]


def test_paused_tasks_and_the_jobs_that_workers_gave_back(work: str, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "keys", "KEY_CACHE_SECONDS": 0}, "METRICS": {"CACHE_SECONDS": 0}}
    for name in ("shop.tasks.pay", "shop.tasks.ship"):
        engine.run(pause_task(name))
    engine.run(pause_task("shop.tasks.pay", project="tenant"))
    engine.run(engine.enqueue(work, [engine.NewJob(name=name) for name in ("shop.tasks.pay", "shop.tasks.other")]))
    back = [engine.Release(job.seq, job.token, 5_000) for job in engine.run(engine.claim(work, NODE, 9))]
    engine.run(engine.release(back, NODE, unstarted=True))
    found = scrape(authorization=f"Bearer {create_key('test', ('metrics', 'projects'))[1]}")
    assert [value(found, name) for name in ("leasequeue_paused_tasks", "leasequeue_paused_jobs")] == [3, 1]


async def test_the_use_of_the_pool(work: str) -> None:
    def used_and_idle() -> list[float]:
        found = samples(exposition(pools(), "")[0].decode())
        name = "leasequeue_pool_connections"
        return [value(found, name, database="default", state=state) or 0 for state in ("used", "idle")]

    await pool.close_pools()
    _, before = used_and_idle()
    try:
        async with pool.borrow("default"):
            assert used_and_idle()[0] == 1
        assert used_and_idle() == [0, before + 1]
    finally:
        await pool.close_pools()


def test_inside_a_transaction_of_the_host(work: str) -> None:
    read = "SELECT current_setting('enable_seqscan'), current_setting('enable_bitmapscan'), current_setting('jit')"
    with transaction.atomic():
        before = run(read)
        figures.look_at("default")
        assert run(read) == before

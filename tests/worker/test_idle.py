"""A worker that has nothing to do: what wakes it, and what it does then."""

from typing import Any

import pytest
from django.db import connection as other_connection

from django_leasequeue import engine
from tests.support.waiting import eventually
from tests.worker.support import Threaded, enqueue, results, working

pytestmark = pytest.mark.django_db(transaction=True)

#: Seconds that nobody waits.
LONG = 100.0


def rests(threaded: Threaded) -> bool:
    """Whether the worker has found nothing to do and hears of new jobs: it looks once more, and sleeps."""
    watch = threaded.worker._fetcher._watch
    return watch is not None and watch.live


@pytest.mark.usefixtures("work")
def test_an_idle_worker_whose_connection_is_lost_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.worker.link.FIRST_RETRY", 0.01)
    with working(poll=LONG) as threaded:
        eventually(lambda: rests(threaded), "the worker is idle")
        with other_connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s",
                [f"leasequeue claim {threaded.state.node}"[:63] + "%"],
            )
            assert cursor.fetchall() == [(True,)]
        enqueue({})
        eventually(lambda: results() == {"0": 1}, "the job is done")


def test_a_worker_without_a_queue_rests_too(settings: Any) -> None:
    settings.LEASEQUEUE = {"AUTO_CREATE": False}
    with working(poll=LONG, queues=("declared-later",)) as threaded:
        eventually(lambda: rests(threaded), "the worker is idle")
        engine.run(engine.create("declared-later", preset="django"))
        enqueue({}, queue="declared-later")
        eventually(lambda: results() == {"0": 1}, "the job is done")


@pytest.mark.usefixtures("work")
def test_an_idle_worker_looks_by_itself_for_what_nobody_announces() -> None:
    with working(poll=0.05) as threaded:
        eventually(lambda: rests(threaded), "the worker is idle")
        engine.run(engine.enqueue("work", [engine.NewJob(key="later", delay_ms=20)]))
        eventually(lambda: results() == {"later": 1}, "a delayed job is done")


@pytest.mark.usefixtures("work")
def test_an_idle_worker_stops_at_once() -> None:
    with working(poll=LONG) as threaded:
        eventually(lambda: rests(threaded), "the worker is idle")
        assert threaded.stop() == 0


@pytest.mark.usefixtures("work")
def test_after_a_pause_few_are_claimed_ahead() -> None:
    with working(poll=LONG, concurrency=2) as threaded:
        enqueue(*({} for _ in range(2_000)))
        eventually(lambda: len(results()) == 2_000, "the short ones are done")
        eventually(lambda: rests(threaded) and threaded.worker._fetcher._ahead == 1, "the worker has been idle a while")
        before = threaded.state.figures.claimed
        enqueue(*({"do": "wait"} for _ in range(300)))
        eventually(lambda: threaded.state.figures.claimed > before, "long ones are claimed")
        assert threaded.state.figures.claimed - before <= 2 * (2 + 5)

"""Claims that are prepared before the fetcher sleeps, and sent by the listener when a producer announces a job."""

import threading
import time
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import connection as other_connection

from django_leasequeue import engine
from django_leasequeue.engine import pool
from django_leasequeue.engine.runner import ConnectionExecutor
from django_leasequeue.notify.alarms import Alarm
from django_leasequeue.worker.link import NotAnnounced, Primed
from tests.support.waiting import eventually
from tests.worker.support import Threaded, enqueue, results, working

pytestmark = pytest.mark.django_db(transaction=True)

#: Seconds that nobody waits.
LONG = 100.0


@pytest.fixture
def connection() -> Iterator[pool.Connection]:
    with pool.connect("default", patience=LONG) as made:
        yield made


def rests(threaded: Threaded) -> bool:
    """Whether the worker has a claim that waits to be sent."""
    primed = threaded.worker._fetcher._primed
    return primed is not None and primed._send is not None


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_a_claim_that_is_held_back_takes_what_came_meanwhile(connection: pool.Connection, encoding: str) -> None:
    """In another encoding psycopg's cursor sends: it waits as long."""
    engine.run(engine.create("work"))
    connection.execute(f"SET client_encoding = '{encoding}'".encode())
    primed, executor, claimed = Primed(Alarm(), LONG), ConnectionExecutor(connection), []
    executor.hold = primed.hold
    thread = threading.Thread(target=lambda: claimed.extend(executor.run(engine.claim("work", "node"))))
    thread.start()
    eventually(lambda: primed._send is not None, "it is held back")
    enqueue({})
    before = time.monotonic()
    primed.send()
    primed._alarm.wake()
    thread.join(LONG)
    assert [job.key for job in claimed] == ["0"]
    assert primed.at >= before
    # The next one is not held back.
    assert executor.run(engine.claim("work", "node")) == []


def test_what_nobody_announces_is_not_sent(connection: pool.Connection) -> None:
    engine.run(engine.create("work"))
    executor, primed = ConnectionExecutor(connection), Primed(Alarm(), 0.01)
    executor.hold = primed.hold
    with pytest.raises(NotAnnounced):
        executor.run(engine.claim("work", "node"))
    primed.send()  # too late
    assert (primed.at, connection.pgconn.transaction_status) == (0, psycopg.pq.TransactionStatus.IDLE)
    assert executor.run(engine.claim("work", "node")) == []


def test_what_cannot_be_sent_fails_in_the_thread_that_waits() -> None:
    def fail() -> None:
        raise psycopg.OperationalError("no connection")

    alarm = Alarm()
    primed = Primed(alarm, LONG)

    def announce() -> None:
        eventually(lambda: primed._send is not None, "it is held back")
        primed.send()
        alarm.wake()

    thread = threading.Thread(target=announce)
    thread.start()
    with pytest.raises(psycopg.OperationalError, match="no connection"):
        primed.hold(fail)
    thread.join()


def test_the_time_of_the_server_does_not_run_while_a_statement_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: now))

    def statement() -> Generator[Any, Any, None]:
        nonlocal now
        yield  # it is prepared first
        now += LONG  # held back
        while True:
            yield

    limited = pool._limited(statement(), 10)
    next(limited)
    now += 1
    limited.send(1)
    now += 8
    limited.send(0)
    now += 1
    with pytest.raises(pool.NoAnswer):
        limited.send(0)


@pytest.mark.usefixtures("work")
def test_the_listener_sends_the_claim_of_an_idle_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    senders: list[str] = []
    send = Primed.send

    def note(primed: Primed) -> None:
        if primed._send is not None:
            senders.append(threading.current_thread().name)
        send(primed)

    monkeypatch.setattr(Primed, "send", note)
    with working(poll=LONG) as threaded:
        eventually(lambda: rests(threaded), "the worker is idle")
        fetcher, asked = threaded.worker._fetcher, []
        dispatch = fetcher._dispatch
        monkeypatch.setattr(fetcher, "_dispatch", lambda jobs, at: (asked.append(at), dispatch(jobs, at)))
        before = time.monotonic()
        enqueue({})
        eventually(lambda: results() == {"0": 1}, "the job is done")
    # The lease is counted from the claim on, not from the beginning of the sleep.
    assert asked[0] >= before
    assert senders == ["leasequeue-listen-default"]


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


def test_what_wakes_it_before_it_is_ready_is_told() -> None:
    """The next claim then takes fresh jobs without a look."""
    alarm = Alarm()
    for announced in (True, False):
        primed = Primed(alarm, 0.01)
        primed.send()
        if announced:
            alarm.wake()
        with pytest.raises(NotAnnounced) as caught:
            primed.hold(lambda: None)
        assert caught.value.woken is announced

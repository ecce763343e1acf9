"""Waiting: wake-ups that come, none that is lost, and what happens when the connection is."""

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine import pool
from django_leasequeue.notify import Listener, Subscription, get_listener, reply_channel, session, waking
from django_leasequeue.notify import listener as listener_module
from django_leasequeue.notify.alarms import Alarm
from django_leasequeue.words import named
from tests.engine.helpers import make
from tests.support.waiting import eventually

LOCKS = named("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = {lock.listeners}::oid")


@pytest.fixture
def other(test_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(test_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True)
def others(other: psycopg.Connection[Any]) -> list[int]:
    """Connections that other processes listen on: servers that tests of the HTTP doors keep running."""
    return listeners(other)


@pytest.fixture
def queue_id(test_dsn: str) -> int:
    return make("mail", preset="django")


@contextmanager
def waiting(listener: Listener, *queue_ids: int) -> Iterator[Alarm]:
    """A thread that waits for jobs of queues."""
    alarm = Alarm()
    with closing(listener.watch(queue_ids, alarm.wake)) as watch:
        assert (watch.wait_ready(), watch.live) == (True, True)
        yield alarm


def hears(channel: str) -> tuple[Subscription, "queue.Queue[str | None]"]:
    """A subscription that is heard, and what comes by it."""
    heard: queue.Queue[str | None] = queue.Queue()
    made = get_listener().subscribe(channel, heard.put)
    assert made.wait_ready(60)
    return made, heard


def enqueue(connection: psycopg.Connection[Any], count: int = 1) -> None:
    engine.ConnectionExecutor(connection).run(engine.enqueue("mail", [engine.NewJob(data=1)] * count))


def held(connection: psycopg.Connection[Any], queue_id: int) -> bool:
    row = connection.execute(f"{LOCKS} AND objid = %s", [queue_id]).fetchone()
    return bool(row[0])


def listeners(connection: psycopg.Connection[Any]) -> list[int]:
    found = connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND query ~ '^(LISTEN|UNLISTEN|SELECT pg_)'"
    )
    return [pid for (pid,) in found]


def test_a_job_wakes_who_waits_for_its_queue_and_nobody_else(other: psycopg.Connection[Any], queue_id: int) -> None:
    idle, listener = make("idle"), get_listener()
    with waiting(listener, queue_id) as first, waiting(listener, queue_id) as second, waiting(listener, idle) as third:
        assert held(other, queue_id)
        enqueue(other)
        assert first.wait(60)
        assert second.wait(60)
        assert not third.wait(0.05)
    eventually(lambda: not held(other, queue_id), "the lock is given back")


def test_a_job_of_a_transaction_that_began_before_the_wait_is_found(test_dsn: str, queue_id: int) -> None:
    """Its statement tested the lock before anybody held it, so it notifies nobody."""
    with psycopg.connect(test_dsn) as writer:
        enqueue(writer)
        with waiting(get_listener(), queue_id) as waiter:
            assert engine.run(engine.claim("mail", "w")) == []
            writer.commit()
            jobs: list[engine.LeasedJob] = []
            while not jobs:
                assert waiter.wait(60), "nobody said that a look was worth it"
                jobs = engine.run(engine.claim("mail", "w"))
    assert len(jobs) == 1


def test_looks_end_when_no_old_transaction_is_left(test_dsn: str, other: Any, queue_id: int) -> None:
    listener = get_listener()
    with psycopg.connect(test_dsn) as writer:
        writer.execute("SELECT pg_current_xact_id()")
        with waiting(listener, queue_id) as waiter:
            assert waiter.wait(60)
            assert listener._unsettled()
            writer.commit()
            eventually(lambda: not listener._unsettled(), "the locks settle")
            waiter.wait(0)
            assert not waiter.wait(0.3)


def test_a_lost_connection_comes_back_and_wakes_everybody(other: Any, others: list[int], queue_id: int) -> None:
    listener = get_listener()
    subscription, heard = hears("news")
    with waiting(listener, queue_id) as waiter:
        pids = [pid for pid in listeners(other) if pid not in others]
        assert len(pids) == 1, "one connection for everything"
        other.execute("SELECT pg_terminate_backend(%s::int)", pids)
        assert heard.get(timeout=60) is None
        assert waiter.wait(60)
        assert queue_id in listener._held
        enqueue(other)
        assert waiter.wait(60)
        other.execute("SELECT pg_notify('news', 'again')")
        assert heard.get(timeout=60) == "again"
    subscription.close()


def test_a_channel_is_heard_by_all_who_subscribed_until_they_close(other: Any, monkeypatch: Any) -> None:
    channel = reply_channel()
    (one, first), (two, second) = hears(channel), hears(channel)
    other.execute("SELECT pg_notify(%s, '1')", [channel])
    assert first.get(timeout=60) == second.get(timeout=60) == "1"
    one.close()
    other.execute("SELECT pg_notify(%s, '2')", [channel])
    assert second.get(timeout=60) == "2"
    assert first.empty()
    two.close()
    again = get_listener().subscribe(channel, second.put)
    assert again.ready.done(), "who comes soon after the last one need not wait"
    other.execute("SELECT pg_notify(%s, '3')", [channel])
    assert second.get(timeout=60) == "3"
    monkeypatch.setattr("django_leasequeue.notify.listener.CHANNEL_LINGER", 0)
    again.close()
    hears("another")
    assert get_listener()._listening == {"another"}


def test_a_callback_that_raises_does_not_silence_the_others(other: psycopg.Connection[Any], caplog: Any) -> None:
    bad = get_listener().subscribe("news", lambda _: 1 / 0)
    _, heard = hears("news")
    assert bad.wait_ready(60)
    for word in ("1", "2"):
        other.execute("SELECT pg_notify('news', %s)", [word])
        assert heard.get(timeout=60) == word
    assert "A callback of the listener raised" in caplog.text


def test_the_connection_closes_and_opens_again(other: Any, others: list[int], queue_id: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("django_leasequeue.notify.listener.IDLE_CLOSE", 0.05)
    monkeypatch.setattr("django_leasequeue.notify.listener.LINGER", 0.05)
    listener = get_listener()
    for _ in range(3):
        with waiting(listener, queue_id) as waiter:
            enqueue(other)
            assert waiter.wait(60)
        eventually(lambda: listener._thread is None, "the thread ends")
        eventually(lambda: set(listeners(other)) <= set(others), "the server has seen the connection close")


@pytest.mark.parametrize("dsn", ["", "postgresql:///nothing?host=/nonexistent"])
async def test_without_a_connection_one_polls(queue_id: int, dsn: str) -> None:
    for channel in ("", "x" * 64):
        with pytest.raises(ValueError, match="1 to 63 bytes"):
            get_listener().subscribe(channel, lambda _: None)
    with override_settings(LEASEQUEUE={"LISTEN_DSN": dsn}):
        with closing(Listener("default")) as listener:
            assert dsn or listener.polls
            async with waking(listener, [queue_id]) as sleep:
                assert not await sleep(3_600), "a poll, far below the time asked for"
            assert dsn or listener._thread is None


async def test_coroutines_wait_on_the_same_connection(test_dsn: str, queue_id: int) -> None:
    async with await psycopg.AsyncConnection.connect(test_dsn, autocommit=True) as other:
        executor = engine.AsyncConnectionExecutor(other)
        listener = get_listener()

        async def one() -> bool:
            async with waking(listener, [queue_id]) as sleep:
                entered.release()
                return await sleep(60)

        entered = asyncio.Semaphore(0)
        waiting = [asyncio.create_task(one()) for _ in range(20)]
        for _ in waiting:
            await entered.acquire()
        await executor.run(engine.enqueue("mail", [engine.NewJob(data=1)]))
        assert await asyncio.gather(*waiting) == [True] * 20
        async with waking(listener, [queue_id]) as sleep:
            assert not await sleep(0.02)


def test_no_wake_up_is_lost_among_writers(test_dsn: str, queue_id: int) -> None:
    """Jobs come one by one from several connections; the backstop is far away, so a lost wake-up would hang."""
    total, writers = 200, 4

    def write() -> None:
        with psycopg.connect(test_dsn, autocommit=True) as connection:
            for _ in range(total // writers):
                enqueue(connection)

    threads = [threading.Thread(target=write) for _ in range(writers)]
    found = 0
    with psycopg.connect(test_dsn, autocommit=True) as own:
        executor = engine.ConnectionExecutor(own)
        for thread in threads:
            thread.start()
        while found < total:
            with waiting(get_listener(), queue_id) as waiter:
                while not (jobs := executor.run(engine.claim("mail", "w", 3))):
                    assert waiter.wait(300), "a wake-up was lost"
            found += len(jobs)
    for thread in threads:
        thread.join()
    assert found == total


def test_a_lock_that_somebody_keeps_makes_nobody_deaf(other: psycopg.Connection[Any], queue_id: int) -> None:
    stuck = make("stuck")
    other.execute(named("SELECT pg_advisory_lock({lock.listeners}, %s)"), [stuck])
    with closing(Listener("default")) as listener, closing(listener.watch([stuck], lambda: None)) as blocked:
        with waiting(listener, queue_id) as alarm:
            enqueue(other)
            assert alarm.wait(60)
            assert not blocked.live
            other.execute(named("SELECT pg_advisory_unlock({lock.listeners}, %s)"), [stuck])
            assert blocked.wait_ready()


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch, test_dsn: str) -> Iterator[pytest.MonkeyPatch]:
    """LISTEN goes to another session than what follows, as behind a pooler in transaction mode."""
    listen = session.Session.listen
    with pool.connect("default") as elsewhere, monkeypatch.context() as patch:

        def astray(self: session.Session, channels: Any, over: Any) -> None:
            own, self._connection = self._connection, elsewhere
            try:
                listen(self, channels, over)
            finally:
                self._connection = own

        patch.setattr(session.Session, "listen", astray)
        patch.setattr(session, "PROOF", 0.2)
        patch.setattr(listener_module, "RETRY_PROOF", 0.6)
        yield patch


def locks(other: psycopg.Connection[Any]) -> int:
    return int(other.execute(LOCKS).fetchone()[0])  # type: ignore[index]


@pytest.mark.slow  # a listener that hears nothing tries again
@pytest.mark.sample
def test_a_listener_that_hears_nothing_says_what_to_set_and_callers_poll_until_it_hears(
    pooled: pytest.MonkeyPatch, other: psycopg.Connection[Any], queue_id: int, caplog: Any
) -> None:
    caplog.set_level("INFO", "django_leasequeue.notify")
    woken = threading.Event()
    with closing(Listener("default")) as listener, closing(listener.watch([queue_id], woken.set)) as watch:
        assert (watch.wait_ready(), watch.live, locks(other)) == (False, False, 0)
        began = time.monotonic()
        another = listener.subscribe("mine", lambda _: None)
        assert (another.wait_ready(), another.live, time.monotonic() - began < 0.1) == (False, False, True)
        (said,) = [record.getMessage() for record in caplog.records if "No notification reaches" in record.message]
        assert "True in DATABASES['default'], and LEASEQUEUE['LISTEN_DSN'] = {'default': a connection string" in said
        pooled.undo()
        eventually(lambda: watch.live and another.live and woken.is_set(), "it hears, and callers look again")
        assert [record.levelname for record in caplog.records if "Notifications come" in record.message] == ["INFO"]


@pytest.mark.slow  # a listener that hears nothing tries again
def test_callers_one_after_the_other_do_not_ask_a_silent_pooler_each_time(
    pooled: pytest.MonkeyPatch, queue_id: int, caplog: Any
) -> None:
    proofs: list[Any] = []
    prove = session.Session.prove
    pooled.setattr(session.Session, "prove", lambda *given: proofs.append(given) or prove(*given))
    pooled.setattr(listener_module, "RETRY_PROOF", 60.0)
    with closing(Listener("default")) as listener:
        for _ in range(5):
            with closing(listener.watch([queue_id], lambda: None)) as watch:
                assert watch.wait_ready() is False
    assert len(proofs) == 1


def test_a_proof_for_which_no_connection_is_free_makes_nobody_deaf(
    monkeypatch: pytest.MonkeyPatch, test_dsn: str, queue_id: int
) -> None:
    connect = pool.connect

    def crowded(using: str, **given: Any) -> Any:
        if given:  # the session's own
            return connect(using, **given)
        raise psycopg.OperationalError("too many clients already")

    monkeypatch.setattr(session.pool, "connect", crowded)
    with closing(Listener("default")) as listener, closing(listener.watch([queue_id], lambda: None)) as watch:
        assert (watch.wait_ready(), watch.live) == (True, True)

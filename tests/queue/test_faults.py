"""Calls while the database fails: a ``StorageError`` for what cannot be done, and they come back; heartbeats go on."""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from pytest_django import DjangoDbBlocker

from django_leasequeue import BufferedQueue, ClaimedJob, Heartbeat, Queue, twins
from django_leasequeue.exceptions import InvalidOption, LeaseLost, StorageError
from django_leasequeue.notify.alarms import Alarm
from django_leasequeue.notify.replies import get_hub
from django_leasequeue.queue import heartbeat, request
from tests.support.faults import Faulty, alias, faulty
from tests.support.temporary_server import TemporaryServer
from tests.support.threads import ThreadResult, in_thread
from tests.support.waiting import eventually
from tests.worker.support import a_job

_names = itertools.count(1)


@pytest.fixture
def server(migrated: TemporaryServer, django_db_blocker: DjangoDbBlocker) -> Iterator[Faulty]:
    """The alias ``faulty`` goes through the proxy, ``direct`` beside it."""
    with faulty(migrated) as found, alias(found), alias(found, "direct", direct=True), django_db_blocker.unblock():
        yield found


@pytest.fixture
def queue(server: Faulty) -> Queue:
    found = Queue(f"faults-{next(_names)}", preset="jqueue", using="faulty")
    Queue(found.name, preset="jqueue", using="direct").create()
    return found


def finish_one(queue: Queue, result: Any) -> None:
    direct = Queue(queue.name, using="direct")
    direct.ack(eventually(direct.claim)[0], result)


@pytest.mark.parametrize("fault", ["refuse", "read-only"])
def test_calls_say_what_they_could_not_do_and_come_back(server: Faulty, queue: Queue, fault: str) -> None:
    queue.enqueue(1)
    with BufferedQueue(queue) as buffer:
        buffer.enqueue(2)
        if fault == "refuse":
            server.proxy.refuse()
        else:
            server.set("default_transaction_read_only", "on")
        try:
            eventually(lambda: raises(lambda: queue.enqueue(3)))
            eventually(lambda: raises(lambda: buffer.enqueue(3)))
        finally:
            server.proxy.heal()
            server.reset("default_transaction_read_only")
        eventually(lambda: not raises(lambda: queue.enqueue(4)))
        eventually(lambda: not raises(lambda: buffer.enqueue(4)))


def raises(call: Any) -> bool:
    try:
        call()
    except StorageError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("fault", ["refuse", "hang"])
def test_who_waits_waits_through_it(server: Faulty, queue: Queue, fault: str, settings: Any, monkeypatch: Any) -> None:
    """Its end is told while the database is away for the caller, who is told and cannot read it, or is not told.

    It looks as soon as the database is back: the backstop is far away, and its own connection is lost as well.
    """
    settings.LEASEQUEUE = {"ASYNC": "native", "STATEMENT_TIMEOUT": 3}
    monkeypatch.setattr("django_leasequeue.notify.replies.BACKSTOP", 3_600)
    with ThreadResult(lambda: queue.enqueue_and_wait(1, timeout=300)) as caller:
        # Not only that the job is there: the caller has been told so, and waits for its end.
        eventually(lambda: get_hub("faulty")._tickets)
        getattr(server.proxy, fault)()
        finish_one(queue, "done")
        server.proxy.heal()
        assert caller.value(60) == "done"


def test_who_is_told_nothing_looks_a_last_time(server: Faulty, queue: Queue) -> None:
    done, open_still = queue.enqueue(1).seq, queue.enqueue(2).seq
    finish_one(queue, "done")
    hub = get_hub("faulty")
    for seq, ended in ((done, True), (open_still, False)):
        ticket = hub.open(Alarm())
        ticket.bind(seq)
        assert twins.run(ticket.until_ended(time.monotonic())) is ended
        ticket.close()


@pytest.mark.slow
@pytest.mark.usefixtures("native")
@pytest.mark.parametrize(("result", "failures"), [("done", 0), ("d" * 999, 3)], ids=["small", "large"])
async def test_who_cannot_read_yet(server: Faulty, queue: Queue, monkeypatch: Any, result: str, failures: int) -> None:
    """A result of up to 1,000 bytes has come with the notification and is not read."""
    failed: list[int] = []
    usual = request.Caller.areply

    async def away(self: request.Caller, seq: int) -> Any:
        if len(failed) < 3:
            failed.append(seq)
            raise StorageError("away")
        return await usual(self, seq)

    monkeypatch.setattr(request.Caller, "areply", away)
    asking = asyncio.ensure_future(queue.aenqueue_and_wait(1, timeout=60))
    await in_thread(lambda: finish_one(queue, result))
    assert await asking == result
    assert len(failed) == failures


# Heartbeats


def leased(*, lease_ms: int, node: str = "worker", jobs: int = 1) -> tuple[Queue, list[ClaimedJob]]:
    """Return a queue of the server that fails, and jobs of it, each leased by itself."""
    queue = Queue(f"beats-{next(_names)}", preset="jqueue", node=node, using="faulty")
    queue.enqueue_many(range(jobs))
    return queue, [job for _ in range(jobs) for job in queue.claim(lease_ms=lease_ms)]


def beats(heart: Heartbeat) -> None:
    before = heart.job.deadline
    eventually(lambda: heart.job.deadline > before)


@pytest.mark.usefixtures("native")
async def test_a_read_only_server_ends_no_heartbeat(server: Faulty, caplog: pytest.LogCaptureFixture) -> None:
    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == heartbeat.logger.name]

    caplog.set_level(logging.INFO, heartbeat.logger.name)
    queue, [job] = await in_thread(lambda: leased(lease_ms=30_000))
    async with Heartbeat(queue, job, interval=0.05) as heart:
        await asyncio.to_thread(beats, heart)
        await asyncio.to_thread(server.set, "default_transaction_read_only", "on")
        await asyncio.to_thread(eventually, lambda: bool(said()))
        await asyncio.to_thread(server.reset, "default_transaction_read_only")
        await asyncio.to_thread(beats, heart)
        assert not heart.lost
    eventually(lambda: len(said()) >= 2)
    failed, back = said()
    assert failed.startswith("Heartbeats fail, trying again")
    assert back.startswith("Heartbeats go on")


@pytest.mark.parametrize("fault", ["cut", "refuse"])
def test_a_server_that_goes_and_comes_back(server: Faulty, fault: str) -> None:
    queue, [job] = leased(lease_ms=30_000)
    with Heartbeat(queue, job, interval=0.05) as heart:
        beats(heart)
        getattr(server.proxy, fault)()
        server.proxy.heal()
        beats(heart)
        assert not heart.lost


@pytest.mark.slow
def test_a_database_that_hangs_loses_the_lease_in_time(server: Faulty) -> None:
    """``lost`` is told a second before the lease ends at the latest, by this process's clock."""
    queue, [job] = leased(lease_ms=6_000)
    with Heartbeat(queue, job, interval=5) as heart:
        server.proxy.hang()
        hangs = time.monotonic()
        assert heart.wait_lost(60)
        assert heart.good_until < hangs + 5
        with pytest.raises(LeaseLost):
            heart.raise_if_lost()
        server.proxy.heal()
    assert heart.lost, "for good"


@pytest.mark.slow
def test_a_hanging_connection_is_given_up_for_another(server: Faulty) -> None:
    queue, [job] = leased(lease_ms=60_000)
    with Heartbeat(queue, job, interval=0.05) as heart:
        beats(heart)
        server.proxy.hang(answers_only=True)
        accepted = server.proxy.accepted
        eventually(lambda: server.proxy.accepted > accepted)
        server.proxy.cut()
        server.proxy.heal()
        beats(heart)


@pytest.mark.slow
def test_a_job_that_a_transaction_has_locked_keeps_no_other_waiting(server: Faulty) -> None:
    """The one is of the others' group; they beat without it while it cannot."""
    queue, jobs = leased(jobs=3, lease_ms=60_000)
    hearts = [Heartbeat(queue, job, interval=0.1) for job in jobs]
    locked, *free = hearts
    with psycopg.connect(server.server.conninfo()) as other, hearts[0], hearts[1], hearts[2]:
        other.execute(
            "SELECT FROM leasequeue_claim WHERE %s = ANY (seqs) AND token = %s FOR UPDATE",
            [locked.job.seq, locked.job.token],
        )
        before = locked.job.deadline
        for heart in free:
            beats(heart)
            beats(heart)
        assert locked.job.deadline == before
        other.rollback()
        beats(locked)


def test_a_thread_that_died_is_replaced(server: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "RETRY", 0.05)
    queue, [job] = leased(lease_ms=30_000)
    broken = threading.Event()
    usual = heartbeat.HeartbeatThread._beat

    def breaks(self: heartbeat.HeartbeatThread, due: list[Heartbeat]) -> None:
        if due and not broken.is_set():
            broken.set()
            raise SystemExit
        usual(self, due)

    monkeypatch.setattr(heartbeat.HeartbeatThread, "_beat", breaks)
    with Heartbeat(queue, job, interval=0.05) as heart:
        assert broken.wait(60)
        beats(heart)


def test_one_group_that_fails_leaves_the_others_alone(server: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is that one group's statement meets: here its own node is refused by the engine."""
    queue, [bad] = leased(lease_ms=30_000, node="bad")
    other, [good] = leased(lease_ms=30_000, node="good")
    usual = heartbeat.HeartbeatThread._extend

    def refuses(self: heartbeat.HeartbeatThread, hearts: list[Heartbeat], connection: Any) -> None:
        if hearts[0].job.node == "bad":
            raise TypeError("of this group alone")
        usual(self, hearts, connection)

    monkeypatch.setattr(heartbeat.HeartbeatThread, "_extend", refuses)
    with Heartbeat(queue, bad, interval=0.05) as first, Heartbeat(other, good, interval=0.05) as second:
        beats(second)
        beats(second)
        assert not second.lost
        assert not first.lost, "its lease has not ended yet"


def test_a_job_that_waited_beats_sooner(server: Faulty) -> None:
    """A lease that was claimed some time ago is extended before it ends, not a third of its length from now."""
    queue, [job] = leased(lease_ms=30_000)
    late = ClaimedJob(job.lease, job.node, job.serializer, job.asked - 28)
    heart = Heartbeat(queue, late)
    assert heart.interval == 10
    assert heart.first_pause < 0.3
    assert Heartbeat(queue, ClaimedJob(job.lease, job.node, job.serializer, job.asked - 29)).lost


@pytest.mark.parametrize("wrong", [
    {"lease_ms": 1500.0}, {"lease_ms": "1500"}, {"lease_ms": True}, {"lease_ms": 99}, {"lease_ms": 86_400_001},
    {"interval": "1"}, {"interval": True}, {"interval": float("nan")}, {"interval": float("inf")}, {"interval": 30},
    {"interval": 0}, {"interval": 2, "lease_ms": 2_000},
])  # fmt: skip
def test_arguments_are_checked_where_they_are_given(wrong: dict[str, Any]) -> None:
    now = datetime.now(UTC)
    row = a_job()._replace(claimed_epoch=now.timestamp(), deadline_epoch=now.timestamp() + 30)
    with pytest.raises(InvalidOption, match=f"^{min(wrong)} must be"):
        Heartbeat(Queue("beats", using="default"), ClaimedJob(row, "worker"), **wrong)

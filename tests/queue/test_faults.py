"""The library's calls while the database fails: a ``StorageError`` for what cannot be done, and they come back."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from django_leasequeue import BufferedQueue, ClaimedJob, Queue, twins
from django_leasequeue.exceptions import StorageError
from django_leasequeue.notify.alarms import Alarm
from django_leasequeue.notify.replies import get_hub
from tests.support.faults import Faulty, alias, faulty
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually

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
    taken: list[ClaimedJob] = []

    def take() -> bool:
        taken.extend(direct.claim())
        return bool(taken)

    eventually(take)
    direct.ack(taken[0], result)


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
def test_who_waits_for_a_result_waits_through_it(
    server: Faulty, queue: Queue, fault: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is told while the database is away for the caller, who is told and cannot read it, or is not told.

    It looks as soon as the database is back: the backstop is far away, and its own connection is lost as well.
    """
    settings.LEASEQUEUE = {"ASYNC": "native", "STATEMENT_TIMEOUT": 3}
    monkeypatch.setattr("django_leasequeue.notify.replies.BACKSTOP", 3_600)
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(queue.enqueue_and_wait(1, timeout=3_600))
        except Exception as error:  # noqa: BLE001  (the test looks at it)
            answers.append(error)
        finally:
            connections["faulty"].close()

    caller = threading.Thread(target=ask, daemon=True)
    caller.start()
    # Not only that the job is there: the caller has been told so, and waits for its end.
    eventually(lambda: get_hub("faulty")._tickets)
    getattr(server.proxy, fault)()
    finish_one(queue, "done")
    server.proxy.heal()
    caller.join(60)
    assert answers == ["done"]


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
async def test_who_is_told_and_cannot_read_the_result_reads_it_later(
    server: Faulty, queue: Queue, monkeypatch: pytest.MonkeyPatch, result: str, failures: int
) -> None:
    """A result of up to 1,000 bytes has come with the notification and is not read."""
    from django_leasequeue.queue import request

    failed: list[int] = []
    usual = request.AsyncCaller.reply

    async def away(self: request.AsyncCaller, seq: int) -> Any:
        if len(failed) < 3:
            failed.append(seq)
            raise StorageError("away")
        return await usual(self, seq)

    monkeypatch.setattr(request.AsyncCaller, "reply", away)
    asking = asyncio.ensure_future(queue.aenqueue_and_wait(1, timeout=60))

    def work() -> None:
        try:
            finish_one(queue, result)
        finally:
            connections["direct"].close()

    await asyncio.to_thread(work)
    assert await asking == result
    assert len(failed) == failures

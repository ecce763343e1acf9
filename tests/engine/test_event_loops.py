"""Host code runs an event loop for a moment, again and again: no loop leaves connections, or waits for ever."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync

from django_leasequeue import engine
from django_leasequeue.engine import pool
from tests.engine import helpers
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("native", "no_backend_stays")]

LOOPS = 30


def backends() -> int:
    gc.collect()  # what psycopg was opening when it was cancelled goes as garbage
    query = """
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    """
    return len(helpers.run(query))


@pytest.fixture
def no_backend_stays() -> Iterator[None]:
    before = backends()
    yield
    eventually(lambda: backends() <= before)


async def call() -> None:
    assert await engine.arun(engine.counts_of([])) == {}


async def calls() -> None:
    await asyncio.gather(*(call() for _ in range(6)))


async def failing() -> None:
    await call()
    raise ZeroDivisionError


def in_a_thread(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    thread = threading.Thread(target=asyncio.run, args=[function()])
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def by_hand(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a loop as some code does that knows nothing of what a loop should close."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(function())
    finally:
        loop.close()


def to_sync(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async_to_sync(function)()


def run(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(function())


@pytest.mark.parametrize("body", [call, calls])
@pytest.mark.parametrize("way", [run, to_sync, in_a_thread])
def test_a_loop_closes_its_connections_when_it_ends(way: Any, body: Any) -> None:
    for _ in range(LOOPS):
        way(body)
    assert pool.usage() == {}


def test_and_one_that_ends_with_an_exception() -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            run(failing)


def test_those_of_a_loop_that_ends_nothing_are_closed_when_the_next_one_begins(caplog: Any) -> None:
    before = backends()
    for _ in range(LOOPS):
        by_hand(call)
    eventually(lambda: backends() <= before + 1)
    run(call)
    assert caplog.messages == []


@pytest.mark.parametrize("turns", range(8))
def test_a_loop_may_end_at_any_turn_after_a_call_began(turns: int) -> None:
    async def impatient() -> None:
        begun = asyncio.ensure_future(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not begun.done()

    in_a_thread(impatient)


def test_a_loop_that_ends_while_a_connection_is_opened_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()

    async def configure(using: str, connection: psycopg.AsyncConnection[Any]) -> None:
        begun.set()
        await asyncio.sleep(60)

    async def impatient() -> None:
        asyncio.ensure_future(call())  # noqa: RUF006
        await begun.wait()

    monkeypatch.setattr(pool, "_configure", configure)
    since = time.monotonic()
    run(impatient)
    assert time.monotonic() - since < 5


@pytest.mark.filterwarnings("ignore:asynchronous generator:ResourceWarning")  # of our context managers
def test_a_generator_of_the_host_calls_us_while_its_loop_ends() -> None:
    ended = []

    async def jobs() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await call()
            await call()
            ended.append(1)

    async def left() -> AsyncIterator[int]:
        found = jobs()
        await anext(found)
        await call()
        return found

    for _ in range(10):
        asyncio.run(left())
    assert len(ended) == 10
    by_hand(call)
    run(call)


def test_no_connection_is_lent_that_the_server_has_closed() -> None:
    async def calls_around_its_end() -> None:
        async with pool.borrow("default") as lent:
            pid = lent.info.backend_pid
        async with await psycopg.AsyncConnection.connect(**pool.connection_parameters("default")) as other:
            await other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        await call()

    run(calls_around_its_end)

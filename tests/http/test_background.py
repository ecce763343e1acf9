"""What waits in the background for the database, when the database ends its connection: one line, no stack."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from django_leasequeue.engine import AsyncConnectionExecutor, Operation
from django_leasequeue.engine.leases.cohort import Claimer
from django_leasequeue.engine.pool import borrow, close_pools, connect
from django_leasequeue.engine.topics.topics import look
from django_leasequeue.http.streaming import finish_background
from django_leasequeue.http.topics import leases, reading, watching
from django_leasequeue.http.views import RequestRunner
from tests.engine.helpers import make


@pytest.fixture(autouse=True)
def _queue(transactional_db: None) -> None:
    make("work", claim_jitter_ms=60_000)


class Doomed(RequestRunner):
    """A runner on connections of our own, whose backend is ended just before the operation number ``after``."""

    def __init__(self, after: int = 0) -> None:
        super().__init__("default", threaded=False)
        self.left = after

    async def run(self, operation: Operation[Any]) -> Any:
        async with borrow(self.using) as connection:
            if self.left == 0:
                await asyncio.to_thread(_end, connection.info.backend_pid)
            value = await AsyncConnectionExecutor(connection).run(operation)
        self.left -= 1
        return value


def _end(pid: int) -> None:
    with connect("default") as other:
        other.execute("SELECT pg_terminate_backend(%s::int, 60000)", [pid])


@pytest.fixture
async def unhandled() -> AsyncIterator[list[dict[str, Any]]]:
    """What the event loop is told because nobody asked for it."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    yield told
    await close_pools()


async def finish(unhandled: list[dict[str, Any]]) -> None:
    """Wait for what is in the background; the event loop has nothing to say."""
    await finish_background()
    await asyncio.sleep(0)
    gc.collect()
    assert unhandled == []


async def one_line(caplog: pytest.LogCaptureFixture, unhandled: list[dict[str, Any]]) -> str:
    """Return the only line of our log, which has no stack."""
    await finish(unhandled)
    (record,) = [record for record in caplog.records if record.name == "django_leasequeue.http"]
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert "\n" not in record.getMessage()
    return record.getMessage()


@pytest.mark.slow
async def test_a_seal_whose_backend_dies(caplog: pytest.LogCaptureFixture, unhandled: list[dict[str, Any]]) -> None:
    runner = Doomed()
    watcher = reading.SealWatcher(runner)
    waiting = watcher.when(10**15)
    await asyncio.wait_for(waiting, 60)  # whoever waits looks again
    assert "Looking for sealed numbers ended" in await one_line(caplog, unhandled)
    # The next reader begins it anew.
    runner.left = -1
    await asyncio.wait_for(watcher.when(0), 60)


@pytest.mark.slow
async def test_a_cohort_that_cannot_be_left(caplog: pytest.LogCaptureFixture, unhandled: list[dict[str, Any]]) -> None:
    runner = Doomed(after=2)
    found = await runner.run(look("work", leases=True))
    claim = asyncio.ensure_future(leases.claim_together(runner, "", "work", found, [Claimer("w", 1, None)]))
    while runner.left:  # until it has joined, and waits
        await asyncio.sleep(0.01)
    claim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claim
    assert "A cohort could not be left" in await one_line(caplog, unhandled)


@pytest.mark.slow
async def test_a_shared_read_whose_reader_has_left(unhandled: list[dict[str, Any]]) -> None:
    reading = asyncio.ensure_future(watching.shared_read(Doomed(), "", "work", watching.Position(0), False))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await finish(unhandled)

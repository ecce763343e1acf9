from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest

from django_leasequeue.compat.jqueue import BrokerQueue, DirectQueue, Job
from django_leasequeue.notify import close_listeners


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    close_listeners()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.fixture(params=[DirectQueue, BrokerQueue])
async def q(request: pytest.FixtureRequest) -> AsyncIterator[DirectQueue]:
    """Both queues have the same interface."""
    queue = request.param("jobs")
    async with queue if isinstance(queue, BrokerQueue) else nullcontext(queue) as opened:
        yield opened


async def one_held(queue: DirectQueue) -> Job:
    """A job that is enqueued and held."""
    await queue.enqueue("task", b"1")
    [job] = await queue.dequeue()
    return job


def hears(queue: Any, event: str) -> list[Any]:
    """What a queue says of an event, as it says it."""
    heard: list[Any] = []
    queue.on(event, heard.append)
    return heard

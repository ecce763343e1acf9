from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest

from django_leasequeue.compat.jqueue import BrokerQueue, DirectQueue, Job
from django_leasequeue.notify import close_listeners


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    close_listeners()


@asynccontextmanager
async def opened(kind: type[DirectQueue], **options: Any) -> AsyncIterator[DirectQueue]:
    queue = kind("jobs", **options)
    async with queue if isinstance(queue, BrokerQueue) else nullcontext(queue) as found:
        yield found


@pytest.fixture(params=[DirectQueue, BrokerQueue])
async def q(request: pytest.FixtureRequest) -> AsyncIterator[DirectQueue]:
    async with opened(request.param) as found:
        yield found


async def one_held(queue: DirectQueue) -> Job:
    await queue.enqueue("task", b"1")
    [job] = await queue.dequeue()
    return job

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, nullcontext

import pytest

from django_leasequeue.compat.jqueue import BrokerQueue, DirectQueue
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

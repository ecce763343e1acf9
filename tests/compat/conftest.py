from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from django_leasequeue.engine.pool import close_pools
from django_leasequeue.notify import close_listeners


@pytest.fixture
def native(settings: pytest.FixtureRequest) -> None:
    """Async calls on connections of their own, as outside of tests."""
    settings.LEASEQUEUE = {"ASYNC": "native"}  # type: ignore[attr-defined]  # pytest-django's settings


@pytest.fixture
async def closed_pools() -> AsyncIterator[None]:
    """The event loop's connections do not outlive the test."""
    yield
    await close_pools()


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    close_listeners()

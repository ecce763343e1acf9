from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.pool import close_pools
from django_leasequeue.notify import close_listeners


@pytest.fixture
def clock() -> Iterator[engine_clock.Clock]:
    """The engine's clock, held at a round time; ``clock.advance(seconds=...)`` moves it."""
    with engine_clock.hold(engine_clock.Clock(datetime(2030, 1, 1, 12, tzinfo=UTC))) as held:
        yield held


@pytest.fixture
def native(request: pytest.FixtureRequest, settings: Any) -> None:
    """Async calls on connections of their own, as outside of tests."""
    settings.LEASEQUEUE = {"ASYNC": "native"}
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("closed_pools")


@pytest.fixture
async def closed_pools() -> AsyncIterator[None]:
    """The event loop's connections do not outlive the test."""
    yield
    await close_pools()


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    close_listeners()

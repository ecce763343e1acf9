from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.notify import close_listeners


@pytest.fixture
def clock() -> Iterator[engine_clock.Clock]:
    """The engine's clock, held at a round time; ``clock.advance(seconds=...)`` moves it."""
    with engine_clock.hold(engine_clock.Clock(datetime(2030, 1, 1, 12, tzinfo=UTC))) as held:
        yield held


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    close_listeners()

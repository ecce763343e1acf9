"""What the tests of the tasks door share."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from django_leasequeue.engine import clock as engine_clock
from tests.tasks import samples


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    samples.calls.clear()
    yield
    samples.calls.clear()


@pytest.fixture
def clock() -> Iterator[engine_clock.Clock]:
    """The engine's clock, held at a round time; ``clock.advance(seconds=...)`` moves it."""
    with engine_clock.hold(engine_clock.Clock(datetime(2030, 1, 1, 12, tzinfo=UTC))) as held:
        yield held

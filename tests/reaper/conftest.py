from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.reaper import Reaper, duty


@pytest.fixture
def clock() -> Iterator[engine_clock.Clock]:
    """The engine's clock, held at a round time; ``clock.advance(seconds=...)`` moves it."""
    with engine_clock.hold(engine_clock.Clock(datetime(2030, 1, 1, 12, tzinfo=UTC))) as held:
        yield held


@pytest.fixture
def reaper(transactional_db: None, clock: engine_clock.Clock) -> Iterator[Reaper]:
    """A reaper that leads, under the held clock: each ``tick`` does what is due by then."""
    made = Reaper()
    assert made.lead()
    yield made
    made.resign()


@pytest.fixture(autouse=True)
def _no_duty_stays() -> Iterator[None]:
    before = dict(duty._registered)
    yield
    duty._registered.clear()
    duty._registered.update(before)

from collections.abc import Iterator

import pytest

from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.reaper import Reaper, duty


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

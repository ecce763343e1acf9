from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.reaper import Duty, Reaper
from django_leasequeue.reaper.reaper import _registered


@contextmanager
def leading(*duties: Duty) -> Iterator[Reaper]:
    """A reaper that leads, with these duties or all: each ``tick`` does what is due by then."""
    made = Reaper(duties=list(duties) or None)
    assert made.lead()
    try:
        yield made
    finally:
        made.resign()


def tick(reaper: Reaper, **later: float) -> list[str]:
    """Let a reaper that leads do what is due so much later by the held clock; return the duties."""
    assert engine_clock.installed is not None
    engine_clock.installed.advance(**later)
    return reaper.tick()


@pytest.fixture
def reaper(transactional_db: None, clock: engine_clock.Clock) -> Iterator[Reaper]:
    """A reaper that leads, under the held clock."""
    with leading() as made:
        yield made


@pytest.fixture(autouse=True)
def _no_duty_stays() -> Iterator[None]:
    before = dict(_registered)
    yield
    _registered.clear()
    _registered.update(before)

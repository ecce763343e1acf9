"""The delay of a retry for which nobody named one: min(b, m), min(b*a, m), min(b*2^a, m), jitter."""

from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Release
from django_leasequeue.models import Delayed
from tests.support.rows import rows

from .helpers import NODE, claim, delivered, make, one, put

BASE, TOP = 1_000, 60_000


def queue_with(backoff: str, base: int = BASE, top: int = TOP, **options: Any) -> None:
    make("work", backoff=backoff, backoff_base_ms=base, backoff_max_ms=top, **options)


def delay_after(clock, deliveries: int, **release: Any) -> float:
    """Deliver the job for the n-th time, release it and return its delay in ms."""
    delivered(deliveries - 1)
    rows(Delayed).update(deliveries=deliveries - 1)
    job = one()
    assert job.deliveries == deliveries
    settled = engine.run(engine.release([Release(job.seq, job.token, **release)], NODE))
    gone = settled.released[job.seq]
    delay = 0.0 if gone.available_at is None else (gone.available_at - clock.now).total_seconds() * 1_000
    assert gone.state == ("delayed" if delay else "ready")
    clock.advance(seconds=delay / 1_000)
    return delay


@pytest.mark.parametrize(("backoff", "expected"), [
    ("none", [0, 0, 0, 0, 0, 0, 0]), ("fixed", [1_000] * 7),
    ("linear", [1_000, 2_000, 3_000, 4_000, 10_000, 60_000, 60_000]),
    ("exponential", [2_000, 4_000, 8_000, 16_000, 60_000, 60_000, 60_000]),
])  # fmt: skip
def test_formulas(db, clock, backoff: str, expected: list[int]) -> None:
    queue_with(backoff)
    put()
    assert [delay_after(clock, deliveries) for deliveries in (1, 2, 3, 4, 10, 1_000, 2**31 - 1)] == expected


@pytest.mark.parametrize(("backoff", "low"), [("exp_equal_jitter", 0.5), ("exp_full_jitter", 0.0)])
def test_jitter_stays_in_its_range_and_uses_it(db, clock, backoff: str, low: float) -> None:
    queue_with(backoff)
    put(400)
    for deliveries, cap in ((1, 2_000), (3, 8_000), (40, TOP)):
        delivered(deliveries - 1)
        rows(Delayed).update(deliveries=deliveries - 1)
        jobs = claim(400)
        settled = engine.run(engine.release([Release(job.seq, job.token) for job in jobs], NODE))
        delays = [
            0.0 if gone.available_at is None else (gone.available_at - clock.now).total_seconds() * 1_000
            for gone in settled.released.values()
        ]
        assert len(delays) == 400
        assert low * cap <= min(delays) < (low + 0.1) * cap
        assert 0.9 * cap < max(delays) <= cap
        assert len(set(delays)) > 300
        clock.advance(milliseconds=cap)


@pytest.mark.parametrize("backoff", ["fixed", "linear", "exponential", "exp_equal_jitter", "exp_full_jitter"])
@pytest.mark.parametrize(("base", "top"), [(50_000, 7_000), (0, TOP)])
def test_a_base_above_the_top_is_the_top_and_one_of_zero_no_delay(db, clock, backoff: str, base: int, top: int) -> None:
    queue_with(backoff, base=base, top=top)
    put()
    for deliveries in (1, 5):
        assert delay_after(clock, deliveries) <= min(base, top)


def test_a_named_delay_wins(db, clock) -> None:
    queue_with("exponential")
    put()
    assert delay_after(clock, 3, delay_ms=0) == 0
    assert delay_after(clock, 3, delay_ms=123) == 123
    (job,) = claim(lease_ms=1_000)
    clock.advance(seconds=2)
    assert one().seq == job.seq, "an expired lease comes back without delay"
    for delay, state in ((0, "ready"), (None, "delayed")):
        assert engine.run(engine.nack([job.seq], NODE, delay_ms=delay)).released[job.seq].state == state
        if delay == 0:
            one()

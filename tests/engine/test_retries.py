"""The delay of a retry (min(b, m), min(b*a, m), min(b*2^a, m), jitter), where there is none, and that none spins."""

from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Failure, NewJob, Release
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.leases import cohort
from django_leasequeue.engine.topics.topics import look
from django_leasequeue.models import DeadLetter, Delayed
from tests.engine import helpers
from tests.engine.helpers import NODE, claim, delivered, enqueue, give_back, kinds, make, one, put, seqs, state
from tests.support.rows import rows

pytestmark = pytest.mark.django_db


BROKEN = Failure("app.Broken", "it broke")


def retry(delay_ms: int | None = None, failure: Failure | None = BROKEN) -> engine.Released:
    job = one()
    return give_back(job, delay_ms, failure).released[job.seq]


def delay(gone: engine.Released, clock: Clock) -> float:
    """The time that a job that was given back has to wait, in ms; it passes."""
    waits = 0.0 if gone.available_at is None else (gone.available_at - clock.now) / timedelta(milliseconds=1)
    assert gone.state == ("delayed" if waits else "ready")
    clock.advance(milliseconds=waits)
    return waits


class TestNoRetries:
    @pytest.mark.parametrize("preset", ["topics", "zaqar", "codeq", "jqueue", "jobqueue", "django"])
    def test_of_a_job_in_every_queue(self, preset: str) -> None:
        """Also where a queue redelivers for ever: a limit that a job was given is kept."""
        make("work", preset=preset)
        (once,) = enqueue(NewJob(max_deliveries=1))
        retry(delay_ms=0)
        assert claim() == []
        assert state(once.seq) == "dead"
        assert [error["type"] for error in helpers.errors_of(once.seq)] == ["app.Broken"]
        assert (DeadLetter.objects.get().error_type, kinds(once.seq)[-1]) == ("app.Broken", "dead_lettered")
        assert engine.run(engine.redrive("work", [once.seq]))[0].state == "ready"
        assert one().seq == once.seq

    @pytest.mark.parametrize("exhaust_at", ["claim", "release"])
    def test_an_expired_lease_is_the_last_delivery_too(self, clock: Clock, exhaust_at: str) -> None:
        make("work", exhaust_at=exhaust_at)
        (once,) = enqueue(NewJob(max_deliveries=1))
        others = put(2)
        assert seqs(claim()) == [once.seq]
        clock.advance(seconds=31)
        assert seqs(claim(5)) == others
        dead = DeadLetter.objects.get()
        assert (state(once.seq), dead.error_type, dead.fingerprint) == ("dead", "LEASE_EXPIRED", "lease_expired")
        assert kinds(once.seq)[-3:] == ["claimed", "expired", "dead_lettered"]

    def test_where_claims_are_dealt(self) -> None:
        """A window's deal leaves the used-up job aside, and the next one does not meet it."""
        make("work", claim_jitter_ms=100)
        (once,) = enqueue(NewJob(max_deliveries=1))
        retry()
        good = put(2)
        found = engine.run(look("work"))
        joined = engine.run(cohort.join(found.id, 100, [cohort.Claimer(NODE, 3)]))
        dealt = engine.run(cohort.deal_cohort("work", found, joined.waiters))
        assert [seqs(jobs) for jobs in dealt.hands.values()] == [good]
        assert state(once.seq) == "dead"


class TestNoSpinning:
    def runs(self, clock: Clock, seconds: float, **release: Any) -> int:
        """How often a job that fails at once is run in so much time; only its delays let time pass."""
        end, count = clock.now + timedelta(seconds=seconds), 0
        while clock.now < end:
            delay(retry(**release), clock)
            count += 1
            assert count < 1_000, "it spins"
        return count

    @pytest.mark.parametrize(("options", "release"), [
        ({"backoff": "none"}, {}), ({"backoff": "none"}, {"delay_ms": 0}),
        ({"backoff": "fixed", "backoff_base_ms": 0}, {}), ({"backoff": "exp_full_jitter", "backoff_max_ms": 0}, {}),
        ({"backoff": "exponential", "requeue": "back"}, {"delay_ms": 0}),
        ({"backoff": "none", "max_deliveries": 100_000, "dead_letter": "self", "exhaust_at": "release"}, {}),
    ], ids=repr)  # fmt: skip
    def test_a_job_that_fails_at_once_waits(self, clock: Clock, options: Any, release: Any) -> None:
        make("work", **options)
        put()
        assert self.runs(clock, 2, **release) <= 15
        assert self.runs(clock, 60, **release) <= 62

    def test_the_first_retries_are_at_once_then_twice_as_long_each(self, clock: Clock) -> None:
        make("work")
        put()
        delays = [round(delay(retry(delay_ms=0), clock)) for _ in range(14)]
        assert delays == [0, 0, 0, 0, 10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]

    def test_a_longer_delay_stays_as_it_is(self, clock: Clock) -> None:
        make("work", backoff="fixed", backoff_base_ms=7_000)
        put()
        delivered(2**31 - 2)
        assert retry().available_at == clock.now + timedelta(seconds=7)
        rows(Delayed).update(available_at=clock.now, deliveries=50)
        assert retry(delay_ms=1_500).available_at == clock.now + timedelta(milliseconds=1_500)


TOP = 60_000


def delay_after(clock: Clock, deliveries: int, **release: Any) -> float:
    delivered(deliveries - 1)
    rows(Delayed).update(deliveries=deliveries - 1)
    return delay(retry(failure=None, **release), clock)


@pytest.mark.parametrize(("backoff", "expected"), [
    ("none", [0, 0, 0, 0, 0, 0, 0]), ("fixed", [1_000] * 7),
    ("linear", [1_000, 2_000, 3_000, 4_000, 10_000, 60_000, 60_000]),
    ("exponential", [2_000, 4_000, 8_000, 16_000, 60_000, 60_000, 60_000]),
])  # fmt: skip
def test_formulas(db, clock, backoff: str, expected: list[int]) -> None:
    make("work", backoff=backoff, backoff_base_ms=1_000, backoff_max_ms=TOP)
    put()
    assert [delay_after(clock, deliveries) for deliveries in (1, 2, 3, 4, 10, 1_000, 2**31 - 1)] == expected


@pytest.mark.parametrize(("backoff", "low"), [("exp_equal_jitter", 0.5), ("exp_full_jitter", 0.0)])
def test_jitter_stays_in_its_range_and_uses_it(db, clock, backoff: str, low: float) -> None:
    make("work", backoff=backoff, backoff_base_ms=1_000, backoff_max_ms=TOP)
    put(400)
    for deliveries, cap in ((1, 2_000), (3, 8_000), (40, TOP)):
        delivered(deliveries - 1)
        rows(Delayed).update(deliveries=deliveries - 1)
        jobs = claim(400)
        settled = engine.run(engine.release([Release(job.seq, job.token) for job in jobs], NODE))
        now = clock.now
        delays = [((gone.available_at or now) - now) / timedelta(milliseconds=1) for gone in settled.released.values()]
        assert low * cap <= min(delays) < (low + 0.1) * cap
        assert 0.9 * cap < max(delays) <= cap
        assert (len(delays), len(set(delays)) > 300) == (400, True)
        clock.advance(milliseconds=cap)


@pytest.mark.parametrize("backoff", ["fixed", "linear", "exponential", "exp_equal_jitter", "exp_full_jitter"])
@pytest.mark.parametrize(("base", "top"), [(50_000, 7_000), (0, TOP)])
def test_a_base_above_the_top_is_the_top_and_one_of_zero_no_delay(db, clock, backoff: str, base: int, top: int) -> None:
    make("work", backoff=backoff, backoff_base_ms=base, backoff_max_ms=top)
    put()
    for deliveries in (1, 5):
        assert delay_after(clock, deliveries) <= min(base, top)


def test_a_named_delay_wins(db, clock) -> None:
    make("work", backoff="exponential", backoff_base_ms=1_000, backoff_max_ms=TOP)
    put()
    assert delay_after(clock, 3, delay_ms=0) == 0
    assert delay_after(clock, 3, delay_ms=123) == 123
    (job,) = claim(lease_ms=1_000)
    clock.advance(seconds=2)
    assert one().seq == job.seq, "an expired lease comes back without delay"
    assert engine.run(engine.nack([job.seq], NODE, delay_ms=0)).released[job.seq].state == "ready"
    assert engine.run(engine.nack([one().seq], NODE, delay_ms=None)).released[job.seq].state == "delayed"

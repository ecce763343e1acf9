"""No retries where none are wanted, and no retry so fast that a failing job keeps a worker busy."""

from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Failure, NewJob, Release
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.leases import cohort
from django_leasequeue.engine.topics.topics import look
from django_leasequeue.models import DeadLetter, Delayed
from tests.support.rows import rows

from .helpers import NODE, claim, delivered, enqueue, errors_of, kinds, make, one, put, seqs, state

BROKEN = Failure("app.Broken", "it broke")

pytestmark = pytest.mark.django_db


def fail(queue: str = "work", delay_ms: int | None = None) -> engine.Released:
    job = one(queue)
    settled = engine.run(engine.release([Release(job.seq, job.token, delay_ms, BROKEN)], NODE))
    return settled.released[job.seq]


class TestNoRetries:
    @pytest.mark.parametrize("preset", ["topics", "zaqar", "codeq", "jqueue", "jobqueue", "django"])
    def test_of_a_job_in_every_queue(self, preset: str) -> None:
        """Also where a queue redelivers for ever: a limit that a job was given is kept."""
        make("work", preset=preset)
        (once,) = enqueue(NewJob(max_deliveries=1))
        fail(delay_ms=0)
        assert claim() == []
        assert state(once.seq) == "dead"
        assert [error["type"] for error in errors_of(once.seq)] == ["app.Broken"]
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
        assert (state(once.seq), DeadLetter.objects.get().error_type) == ("dead", "LEASE_EXPIRED")

    def test_where_claims_are_dealt(self) -> None:
        """A window's deal leaves the used-up job aside, and the next one does not meet it."""
        make("work", claim_jitter_ms=100)
        (once,) = enqueue(NewJob(max_deliveries=1))
        fail()
        good = put(2)
        found = engine.run(look("work"))
        joined = engine.run(cohort.join(found.id, 100, [cohort.Claimer(NODE, 3)]))
        dealt = engine.run(cohort.deal_cohort("work", found, joined.waiters))
        assert [seqs(jobs) for jobs in dealt.values()] == [good]
        assert state(once.seq) == "dead"


class TestNoSpinning:
    def runs(self, clock: Clock, seconds: float, **release: Any) -> int:
        """How often a job that fails at once is run in so much time; only its delays let time pass."""
        end, count = clock.now + timedelta(seconds=seconds), 0
        while clock.now < end:
            gone = fail(**release)
            count += 1
            assert count < 1_000, "it spins"
            if gone.available_at is not None:
                clock.advance(seconds=(gone.available_at - clock.now).total_seconds())
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
        delays = []
        for _ in range(14):
            gone = fail(delay_ms=0)
            delays.append(
                0 if gone.available_at is None else round((gone.available_at - clock.now) / timedelta(milliseconds=1))
            )
            clock.advance(milliseconds=delays[-1])
        assert delays == [0, 0, 0, 0, 10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]

    def test_a_longer_delay_stays_as_it_is(self, clock: Clock) -> None:
        make("work", backoff="fixed", backoff_base_ms=7_000)
        put()
        delivered(2**31 - 2)
        assert fail().available_at == clock.now + timedelta(seconds=7)
        rows(Delayed).update(available_at=clock.now, deliveries=50)
        assert fail(delay_ms=1_500).available_at == clock.now + timedelta(milliseconds=1_500)

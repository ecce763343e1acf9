"""A limit of a queue: so many of its jobs are leased at once, whoever claims."""

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Release
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.exceptions import InvalidOption
from tests.engine.helpers import NODE, claim, make, put


@pytest.mark.django_db
class TestSlots:
    def test_a_slot_comes_back_with_the_lease(self, clock: engine_clock.Clock) -> None:
        make(concurrency=2)
        put(4)
        job, _ = claim(10)
        engine.run(engine.release([Release(job.seq, job.token, delay_ms=60_000)], NODE))
        assert len(claim(10)) == 1
        clock.advance(seconds=31)
        assert len(claim(10)) == 2

    def test_a_limit_that_changes_counts_at_once(self, clock: engine_clock.Clock) -> None:
        make(concurrency=2)
        make("other")
        put(20)
        put(3, queue="other")
        first = claim(1)
        assert [job.queue for job in claim(10, queue=["work", "other"])] == ["work", *["other"] * 3]
        assert claim(10) == []
        engine.run(engine.finish([Ending(job.seq, job.token) for job in first], NODE))
        assert len(claim(10)) == 1
        engine.run(engine.configure("work", concurrency=5))
        assert len(claim(10)) == 3
        engine.run(engine.configure("work", concurrency=1))
        assert claim(10) == []
        engine.run(engine.configure("work", concurrency=0))
        assert len(claim(10)) == 10

    def test_jobs_that_came_back_to_an_old_place_and_tags_count_too(self, clock: engine_clock.Clock) -> None:
        make(concurrency=1)
        put(2, tag="a")
        (job,) = claim(10)
        engine.run(engine.release([Release(job.seq, job.token)], NODE))
        (job,) = claim(10)
        assert claim(10, tag="a") == []
        engine.run(engine.finish([Ending(job.seq, job.token)], NODE))
        assert len(claim(10, tag="a")) == 1

    def test_not_together_with_shared_claims(self) -> None:
        with pytest.raises(InvalidOption, match="not both"):
            make(concurrency=1, claim_jitter_ms=100)

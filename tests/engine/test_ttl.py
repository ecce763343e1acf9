"""Message TTL, the retention of the dead, and the retention of results."""

from datetime import timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, NewJob
from django_leasequeue.models import JobResult, LiveJob, StoredJob

from .helpers import NODE, OTHER, claim, counts, enqueue, kinds, last_event, make, one, put, seqs, state

pytestmark = pytest.mark.django_db


class TestMessages:
    @pytest.fixture(autouse=True)
    def _queue(self, clock) -> None:
        self.queue = make("work", ttl_ms=60_000)

    def expire(self) -> int:
        return engine.run(engine.expire([self.queue]))

    @pytest.mark.parametrize(("own", "lives_ms"), [(None, 60_000), (5_000, 5_000), (600_000, 600_000)])
    def test_the_jobs_own_wins_over_the_queues(self, clock, own: int | None, lives_ms: int) -> None:
        enqueue(NewJob(ttl_ms=own))
        assert LiveJob.objects.get().expires_at == clock.now + timedelta(milliseconds=lives_ms)
        one(lease_ms=1_000, grace_ms=1_000)
        assert LiveJob.objects.get().expires_at == clock.now + timedelta(milliseconds=lives_ms), "never shortened"

    def test_a_message_past_its_time_is_never_claimed(self, clock) -> None:
        (number,) = put()
        clock.advance(seconds=60, microseconds=-1)
        assert claim()[0].seq == number
        engine.run(engine.nack([number], NODE))
        (number,) = put()
        clock.advance(seconds=60)
        fresh = put()
        assert seqs(claim(5)) == fresh
        assert state(number) is None
        assert (kinds(number), last_event(number).detail) == (["enqueued", "cancelled"], {"reason": "ttl"})

    def test_the_reaper_removes_what_nobody_asks_for_in_rounds(self, clock) -> None:
        log = make("records", type="log", ttl_ms=1_000)
        (record,) = put(queue="records")
        for _ in range(3):
            put(1_000)
        enqueue(NewJob(delay_ms=120_000))
        keep = put(1, ttl_ms=120_000)
        clock.advance(seconds=61)
        assert counts()["ready"] == 1
        assert [self.expire(), self.expire(), engine.run(engine.expire([log]))] == [3_001, 0, 1]
        assert (list(StoredJob.objects.values_list("seq", flat=True)), kinds(record)) == (keep, [])

    def test_and_grace_outlives_the_claim(self, clock) -> None:
        put()
        clock.advance(seconds=50)
        job = one(lease_ms=30_000, grace_ms=20_000)
        assert LiveJob.objects.get().expires_at == job.deadline + timedelta(seconds=20)
        clock.now = job.deadline + timedelta(seconds=19)
        again = one(node=OTHER, lease_ms=100)
        assert again.seq == job.seq
        clock.now = job.deadline + timedelta(seconds=21)
        assert claim() == []
        self.expire()
        assert state(job.seq) is None

    def test_without_grace_it_ends_with_the_claim(self, clock) -> None:
        put()
        clock.advance(seconds=50)
        job = one(lease_ms=30_000)
        clock.now = job.deadline + timedelta(microseconds=1)
        assert claim(node=OTHER) == []
        self.expire()
        assert state(job.seq) is None
        assert kinds(job.seq) == ["enqueued", "claimed", "expired", "cancelled"]

    def test_an_extended_lease_protects_longer(self, clock) -> None:
        put()
        clock.advance(seconds=50)
        job = one(lease_ms=30_000, grace_ms=25_000)
        clock.advance(seconds=29)
        assert self.expire() == 0, "a live claim protects"
        engine.run(engine.extend([job.seq], NODE, 60_000))
        assert LiveJob.objects.get().expires_at == clock.now + timedelta(seconds=85)
        clock.advance(seconds=59)
        assert self.expire() == 0
        engine.run(engine.nack([job.seq], NODE))
        clock.advance(seconds=25)
        assert seqs(claim(node=OTHER)) == [job.seq], "a released one keeps the life that its claim gave it"

    def test_a_message_without_ttl_gets_none_from_a_claim(self, clock) -> None:
        make("endless")
        put(queue="endless")
        assert LiveJob.objects.get().expires_at is None
        clock.advance(days=10_000)
        job = one("endless", grace_ms=1_000)
        engine.run(engine.extend([job.seq], NODE, 1_000))
        assert LiveJob.objects.get().expires_at is None


def test_results_whose_time_is_over_go_the_oldest_first_and_no_more_than_asked(clock) -> None:
    make("work", result_ttl_ms=10_000)
    for ttl in (3_000, 1_000, 2_000):
        put(1)
        engine.run(engine.finish([Ending(one().seq, result_ttl_ms=ttl)], NODE))
    clock.advance(seconds=1, microseconds=-1)
    assert engine.run(engine.expire_results()) == 0
    clock.advance(seconds=9, microseconds=1)
    assert engine.run(engine.expire_results(2)) == 2
    assert JobResult.objects.get().expires_at == clock.now - timedelta(seconds=7)

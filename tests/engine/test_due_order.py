"""Times: delayed jobs that go to the back reach it in the order of their due times; TTL, grace, retention."""

import random
from datetime import timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import JobResult, LiveJob, StoredJob
from tests.engine import helpers
from tests.engine.helpers import NODE, OTHER, claim, enqueue, kinds, make, one, put, seqs, state

pytestmark = pytest.mark.django_db


def shuffled(count: int) -> list[int]:
    """Delays in ms, no two alike, in another order than the jobs' numbers."""
    delays = [1_000 + number for number in range(count)]
    random.Random(14).shuffle(delays)
    return delays


def test_one_by_one_within_each_priority_in_a_database_of_many_queues(clock: Clock) -> None:
    """The planner then joins jobs and queues by hashing the jobs, which turns their order round."""
    for number in range(80):
        make(f"work-{number}", preset="codeq")
    helpers.run("ANALYZE leasequeue_queue")
    delays = shuffled(60)
    enqueue(*[NewJob(data=delay, delay_ms=delay, priority=9 * (delay % 2)) for delay in delays], queue="work-7")
    (fresh,) = put(queue="work-7", priority=9)
    clock.advance(seconds=2)
    jobs = claim(100, "work-7")
    wanted = sorted(delays, key=lambda delay: (-(delay % 2), delay))
    assert (jobs[0].seq, [job.data for job in jobs[1:]]) == (fresh, wanted)


@pytest.mark.django_db(transaction=True)
class TestSeveralAtOnce:
    def test_four_who_promote_keep_the_order(self, clock: Clock) -> None:
        queue = make("work", requeue="back")
        delays = shuffled(8_000)
        for start in range(0, 8_000, 1_000):
            enqueue(*[NewJob(data=delay, delay_ms=delay) for delay in delays[start : start + 1_000]])
        clock.advance(seconds=10)

        def promote(_: int) -> None:
            with helpers.own_connection() as executor:
                while executor.connection.execute("SELECT 1 FROM leasequeue_delayed LIMIT 1").fetchone():
                    executor.run(engine.promote([queue]))

        helpers.crowd(4, promote)
        assert list(LiveJob.objects.order_by("position").values_list("data", flat=True)) == sorted(delays)

    def test_a_transaction_that_has_promoted_keeps_nobody_waiting(self, clock: Clock) -> None:
        """It holds what it promoted and no more: others bring the rest meanwhile."""
        queue = make("work", requeue="back")
        put(1, delay_ms=1_000)
        clock.advance(seconds=1)
        with helpers.open_transaction() as slow, helpers.own_connection() as quick:
            assert slow.run(engine.promote([queue])) == 1
            (later,) = put(1, delay_ms=1_000)
            clock.advance(seconds=1)
            assert seqs(quick.run(engine.claim("work", NODE, 5))) == [later]
            slow.connection.commit()
        assert len(claim(5)) == 1


class TestMessages:
    @pytest.fixture(autouse=True)
    def _queue(self, clock) -> None:
        self.queue = make("work", ttl_ms=60_000)

    def expire(self) -> int:
        return engine.run(engine.expire([self.queue]))

    @pytest.mark.parametrize(("own", "lives_ms"), [(None, 60_000), (5_000, 5_000), (600_000, 600_000)])
    def test_the_jobs_own_wins_over_the_queues(self, clock, own: int | None, lives_ms: int) -> None:
        enqueue(NewJob(ttl_ms=own))
        ends = clock.now + timedelta(milliseconds=lives_ms)
        assert LiveJob.objects.get().expires_at == ends
        one(lease_ms=1_000, grace_ms=1_000)
        assert LiveJob.objects.get().expires_at == ends, "never shortened"
        make("endless")
        (endless,) = put(queue="endless")
        clock.advance(days=10_000)
        assert one("endless", grace_ms=1_000).seq == endless
        engine.run(engine.extend([endless], NODE, 1_000))
        assert LiveJob.objects.get(pk=endless).expires_at is None, "it had none, and gets none from a claim"

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
        assert (kinds(number), helpers.last_event(number).detail) == (["enqueued", "cancelled"], {"reason": "ttl"})

    def test_the_reaper_removes_what_nobody_asks_for_in_rounds(self, clock) -> None:
        log = make("records", type="log", ttl_ms=1_000)
        (record,) = put(queue="records")
        for _ in range(3):
            put(1_000)
        enqueue(NewJob(delay_ms=120_000))
        keep = put(1, ttl_ms=120_000)
        clock.advance(seconds=61)
        assert helpers.counts()["ready"] == 1
        assert [self.expire(), self.expire(), engine.run(engine.expire([log]))] == [3_001, 0, 1]
        assert (list(StoredJob.objects.values_list("seq", flat=True)), kinds(record)) == (keep, [])

    @pytest.mark.parametrize("grace_s", [0, 20])
    def test_it_ends_with_the_claim_and_its_grace(self, clock, grace_s: int) -> None:
        put()
        clock.advance(seconds=50)
        job = one(lease_ms=30_000, grace_ms=grace_s * 1_000)
        assert LiveJob.objects.get().expires_at == job.deadline + timedelta(seconds=grace_s)
        if grace_s:
            clock.now = job.deadline + timedelta(seconds=19)
            assert one(node=OTHER, lease_ms=100).seq == job.seq
        clock.now = job.deadline + timedelta(seconds=grace_s, microseconds=1)
        assert claim(node=OTHER) == []
        self.expire()
        assert state(job.seq) is None
        again = ["claimed", "expired"] if grace_s else []
        assert kinds(job.seq) == ["enqueued", "claimed", "expired", *again, "cancelled"]

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

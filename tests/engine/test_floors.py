"""Floors: they advance only when nothing can appear below them, and a wrong one heals; no job is lost by them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.models import FloorKind, Job, QueueFloor

from .helpers import NODE, OTHER, claim, enqueue, floors, make, one, open_transaction, own_connection, put, seqs

READY, DELAYED, CLAIM = (int(FloorKind.READY), 0), (int(FloorKind.DELAYED), 0), (int(FloorKind.CLAIM), 0)

#: Calls a second apart after which a floor has moved, when nothing holds it.
STEPS = 3


def advance(clock, times: int = STEPS, executor: engine.ConnectionExecutor | None = None) -> None:
    for _ in range(times):
        clock.advance(seconds=1.1)
        (executor.run if executor else engine.run)(engine.advance_floors())


def drain(count: int) -> list[int]:
    numbers = put(count)
    engine.run(engine.ack(seqs(claim(count)), NODE))
    return numbers


def micros(moment) -> int:
    return round(moment.timestamp() * 1_000_000)


@pytest.mark.django_db(transaction=True)
class TestReady:
    @pytest.fixture(autouse=True)
    def _queue(self, transactional_db: None, clock) -> None:
        self.queue = make("work")

    def floor(self) -> QueueFloor:
        return floors(self.queue)[READY]

    def test_moves_to_the_lowest_job_that_waits(self, clock) -> None:
        drain(10)
        waiting = put(3)
        advance(clock)
        assert self.floor().value == waiting[0]
        assert seqs(claim(9)) == waiting

    def test_moves_behind_everything_when_nothing_waits(self, clock) -> None:
        done = drain(10)
        advance(clock)
        assert self.floor().value > done[-1]
        fresh = put()
        assert fresh[0] >= self.floor().value
        assert seqs(claim(9)) == fresh

    def test_not_at_once(self, clock) -> None:
        drain(10)
        before = self.floor().value
        engine.run(engine.advance_floors())
        engine.run(engine.advance_floors())
        engine.run(engine.advance_floors())
        assert self.floor().value == before

    def test_waits_for_every_writing_transaction_that_was_open(self, clock) -> None:
        """A slow transaction drew its number before the candidate was noted: its job is not to end up below."""
        drain(5)
        with open_transaction() as slow:
            (early,) = slow.run(engine.enqueue("work", [NewJob(data="slow")]))
            drain(5)
            for _ in range(10):
                advance(clock)
                assert self.floor().value <= early.seq
            slow.connection.commit()
        assert seqs(claim(9)) == [early.seq]
        engine.run(engine.ack([early.seq], NODE))
        advance(clock)
        assert self.floor().value > early.seq

    def test_a_reader_does_not_hold_it(self, clock) -> None:
        with open_transaction() as reader:
            reader.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            reader.connection.execute("SELECT count(*) FROM leasequeue_job")
            done = drain(10)
            advance(clock)
            assert self.floor().value > done[-1]

    def test_a_release_below_it_lowers_it(self, clock) -> None:
        first, *others = put(5)
        claim(5)
        advance(clock, executor=None)
        assert self.floor().value > others[-1]
        engine.run(engine.nack([first], NODE))
        assert self.floor().value == first
        assert seqs(claim(node=OTHER)) == [first]

    def test_a_release_lowers_a_candidate_before_it_is_applied(self, clock) -> None:
        first = put(5)[0]
        claim(5)
        advance(clock, 2)
        candidate = self.floor()
        assert candidate.candidate > first
        assert candidate.value <= first
        engine.run(engine.nack([first], NODE))
        advance(clock)
        assert self.floor().value == first
        assert seqs(claim(node=OTHER)) == [first]

    def test_an_uncommitted_release_is_not_overtaken(self, clock) -> None:
        numbers = put(5)
        claim(5)
        with open_transaction() as slow, ThreadPoolExecutor(1) as threads, own_connection() as reaper:
            slow.run(engine.nack(numbers[:1], NODE))
            done = threads.submit(advance, clock, 4, reaper)
            done.result(20)
            slow.connection.commit()
        assert seqs(claim(9, node=OTHER)) == numbers[:1]

    def test_expired_and_promoted_jobs_lower_it(self, clock) -> None:
        expiring = put()[0]
        one()
        delayed = put()[0]
        one()
        engine.run(engine.nack([delayed], NODE, delay_ms=20_000))
        drain(5)
        advance(clock)
        assert self.floor().value > delayed
        clock.advance(seconds=40)
        assert seqs(claim(9, node=OTHER)) == [expiring, delayed]

    def test_a_redriven_job_lies_above_it(self, clock) -> None:
        engine.run(engine.configure("work", max_deliveries=1, exhaust_at="release", dead_letter="self"))
        dead = put()
        engine.run(engine.nack([one().seq], NODE))
        drain(5)
        advance(clock)
        engine.run(engine.redrive("work", dead))
        assert seqs(claim()) == dead

    def test_a_wrong_floor_heals_within_a_minute(self, clock) -> None:
        numbers = put(3)
        advance(clock, 1)
        QueueFloor.objects.filter(queue_id=self.queue, kind=FloorKind.READY).update(
            value=10**15, candidate=None, mark=None
        )
        assert claim(9) == []
        advance(clock, 1)
        assert claim(9) == []
        clock.advance(seconds=60)
        advance(clock, 1)
        assert seqs(claim(9)) == numbers

    def test_a_wrong_candidate_is_looked_at_once_more(self, clock) -> None:
        numbers = put(3)
        advance(clock, 1)
        QueueFloor.objects.filter(queue_id=self.queue, kind=FloorKind.READY).update(
            value=0, candidate=10**15, candidate_at=clock.now, mark=1
        )
        advance(clock, 1)
        assert self.floor().value <= numbers[0]
        assert seqs(claim(9)) == numbers

    def test_every_rank_has_its_own(self, clock) -> None:
        low, high = enqueue(NewJob(priority=0), NewJob(priority=9))
        assert one().seq == high.seq
        advance(clock)
        assert floors(self.queue)[0, -9].value > high.seq
        assert floors(self.queue)[0, 0].value <= low.seq
        engine.run(engine.nack([high.seq], NODE))
        assert seqs(claim(9)) == [high.seq, low.seq]

    def test_only_the_queues_asked_for(self, clock) -> None:
        other = make("other")
        put(queue="other")
        drain(5)
        for _ in range(STEPS):
            clock.advance(seconds=1.1)
            engine.run(engine.advance_floors([other]))
        assert self.floor().value == 0

    def test_it_does_not_wait_for_a_transaction_that_holds_one(self, clock) -> None:
        """The reaper passes over a floor that a slow transaction has lowered; it must not stand still for all."""
        other = make("other")
        numbers = put(1)
        claim()
        drain(3)
        put(1, "other")
        engine.run(engine.ack(seqs(claim(1, "other")), NODE))
        advance(clock, 1)
        with open_transaction() as slow, own_connection() as reaper:
            slow.run(engine.nack(numbers, NODE))
            reaper.connection.execute("SET statement_timeout = '2s'")
            advance(clock, executor=reaper)
        advance(clock)
        assert floors(other)[READY].value > 0
        assert claim(9) == []
        clock.advance(seconds=31)
        assert seqs(claim(9)) == numbers

    def test_while_many_come_and_go_nothing_is_lost(self, clock) -> None:
        """Producers, claimers that give back and the reaper, each on its own connection."""
        total, given_back = 600, set()
        with (
            own_connection() as producer,
            own_connection() as worker,
            own_connection() as reaper,
            ThreadPoolExecutor(3) as threads,
        ):

            def produce() -> None:
                for _ in range(total // 20):
                    producer.run(engine.enqueue("work", [NewJob(data=1)] * 20))

            def work() -> int:
                done = 0
                while done < total:
                    jobs = worker.run(engine.claim("work", NODE, 15))
                    back = [job.seq for job in jobs[::3] if job.seq not in given_back]
                    given_back.update(back)
                    if back:
                        worker.run(engine.nack(back, NODE))
                    rest = [job.seq for job in jobs if job.seq not in back]
                    if rest:
                        done += len(worker.run(engine.ack(rest, NODE)).ok)
                return done

            def reap() -> None:
                while not working.done():
                    clock.advance(seconds=0.3)
                    reaper.run(engine.advance_floors())

            producing, working = threads.submit(produce), threads.submit(work)
            reaping = threads.submit(reap)
            producing.result(60)
            assert working.result(60) == total
            reaping.result(60)
        assert not Job.objects.exists()
        assert given_back
        advance(clock)
        assert self.floor().value > 0


@pytest.mark.django_db(transaction=True)
class TestTimes:
    """The floors of due times: of delayed jobs and of claims."""

    @pytest.fixture(autouse=True)
    def _queue(self, transactional_db: None, clock) -> None:
        self.queue = make("work")

    def test_of_delayed_jobs_never_pass_now(self, clock) -> None:
        enqueue(NewJob(delay_ms=3_600_000))
        advance(clock)
        assert 0 < floors(self.queue)[DELAYED].value <= micros(clock.now)
        soon = enqueue(NewJob(delay_ms=1))[0].seq
        clock.advance(seconds=1)
        assert seqs(claim(9)) == [soon]

    def test_of_delayed_jobs_stay_at_what_is_due(self, clock) -> None:
        (due,) = enqueue(NewJob(delay_ms=1_000))
        available = Job.objects.get().available_at
        advance(clock, 6)
        assert floors(self.queue)[DELAYED].value == micros(available)
        assert seqs(claim(9)) == [due.seq]

    def test_a_scheduled_job_of_a_slow_transaction_is_found(self, clock) -> None:
        with open_transaction() as slow:
            (scheduled,) = slow.run(engine.enqueue("work", [NewJob(delay_ms=500)]))
            advance(clock, 8)
            slow.connection.commit()
        assert seqs(claim(9)) == [scheduled.seq]

    def test_of_claims_never_pass_now(self, clock) -> None:
        put(2)
        job = one(lease_ms=2_000)
        advance(clock)
        assert 0 < floors(self.queue)[CLAIM].value <= micros(clock.now)
        assert one(node=OTHER).seq == job.seq

    def test_a_short_lease_after_it_moved_expires_in_time(self, clock) -> None:
        put()
        advance(clock)
        job = one(lease_ms=100)
        clock.advance(seconds=0.2)
        assert one(node=OTHER).seq == job.seq

    def test_a_lease_that_is_shortened_expires_in_time(self, clock) -> None:
        put()
        job = one(lease_ms=600_000)
        advance(clock)
        engine.run(engine.extend([job.seq], NODE, 100))
        clock.advance(seconds=0.2)
        assert one(node=OTHER).seq == job.seq

    def test_a_claim_of_a_slow_transaction_expires_in_time(self, clock) -> None:
        put()
        with open_transaction() as slow:
            (job,) = slow.run(engine.claim("work", NODE, lease_ms=500))
            advance(clock, 8)
            slow.connection.commit()
        assert one(node=OTHER).seq == job.seq


@pytest.mark.django_db(transaction=True)
def test_a_floor_answers_at_once_though_a_claim_is_open(clock) -> None:
    make("work")
    put(5)
    with open_transaction() as slow, own_connection() as reaper:
        slow.run(engine.claim("work", NODE, 5))
        reaper.connection.execute("SET statement_timeout = '3s'")
        try:
            advance(clock, executor=reaper)
        except psycopg.errors.QueryCanceled:
            pytest.fail("the reaper waited for a claim")

"""Limits by key and of a queue: slots, rates, and that none is lost, given twice, or waited for in vain."""

import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, Ending, Limited, LimitValues, NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.leases.floor import ClaimCursor
from django_leasequeue.enums import JobFlag
from django_leasequeue.models import FlowTurn, LimitKey, Member
from tests.engine import helpers
from tests.engine.flow import NO, ONE, ack, differences, fail, limited
from tests.engine.helpers import NODE, claim, claim_only, enqueue, give_back, make, one, put, seqs

pytestmark = pytest.mark.usefixtures("clock", "queue")


class TestConcurrency:
    def test_one_of_a_key_at_a_time_in_order(self) -> None:
        a, gone, b, c = limited(["x", "x", "x", "y"])
        plain = put(3)
        first = claim(10)
        assert sorted(seqs(first)) == [a, c, *plain]
        assert claim(10) == []
        assert engine.run(engine.cancel("work", seqs=[gone]))
        ack(*first)
        claim_only(b)

    @pytest.mark.parametrize("durable", [True, False])
    def test_a_slot_comes_back_however_a_job_ends(self, clock: Clock, durable: bool) -> None:
        options = {"max_deliveries": 2, "exhaust_at": "release", "dead_letter": "self", "result_ttl_ms": 1000}
        engine.run(engine.configure("work", **options, leases_durable=durable))
        done, failed, delayed, cancelled, dead, last = limited(["x"] * 6)
        ack(claim_only(done))
        job = claim_only(failed)
        engine.run(engine.finish([Ending(job.seq, job.token, failure=NO)], NODE))
        give_back(claim_only(delayed), 60_000)
        give_back(claim_only(cancelled))
        assert engine.run(engine.cancel("work", seqs=[cancelled]))
        claim_only(dead)
        clock.advance(seconds=31)
        fail(claim_only(dead))  # its lease was over: it held its slot
        job = claim_only(last)
        clock.advance(seconds=10)
        assert claim(10) == []
        ack(job)
        clock.advance(seconds=60)
        ack(claim_only(delayed))
        assert claim(10) == []
        assert list(Member.objects.values_list("seq", "taken")) == [(dead, False)]

    def test_a_delayed_job_waits_for_its_time_and_then_for_its_slot(self, clock: Clock) -> None:
        (late,) = limited(["x"], run_at=clock.now + timedelta(seconds=10))
        (early,) = limited(["x"])
        job = claim_only(early)
        clock.advance(seconds=11)
        assert claim(10) == []
        ack(job)
        claim_only(late)

    def test_a_limit_that_changes_counts_for_those_that_wait(self) -> None:
        limited(["x"] * 1_200)
        assert len(claim(10)) == 1
        assert engine.run(engine.set_limits([LimitValues("customer", concurrency=4)])) == 1
        assert len(claim(10)) == 3
        limited(["x"])  # the code still says 1: the operator's value stays
        assert claim(10) == []
        limited(["x"], LimitValues("customer", concurrency=6))  # a newer release
        assert claim(10) == []
        given_back = engine.run(engine.reset_limit("customer"))
        assert (given_back.concurrency, given_back.named) == (6, True)
        assert len(claim(10)) == 2, "the code's newest value counts at once"
        assert engine.run(engine.reset_limit("customer")) is None
        engine.run(engine.set_limits([LimitValues("unnamed", concurrency=6)]))
        given_back = engine.run(engine.reset_limit("unnamed"))
        assert (given_back.concurrency, given_back.named) == (6, False)
        engine.run(engine.set_limits([LimitValues("customer")]))
        assert sum(len(claim(1_000)) for _ in range(3)) == 1_196, "a limit that is lifted frees all that wait"


def most(started: list[timedelta]) -> int:
    return max(sum(first <= at < first + timedelta(seconds=1) for at in started) for first in started)


@dataclass
class RatedWorker:
    """Notes when its jobs under a rate start, in a time that goes on whatever the clock does."""

    clock: Clock
    queue: int
    passed: timedelta = timedelta()
    started: list[timedelta] = field(default_factory=list)

    def later(self, span: timedelta) -> None:
        """Let time pass, in which the reaper does its duties."""
        self.passed += span
        self.clock.advance(milliseconds=span / timedelta(milliseconds=1))
        for duty in (engine.sweep, engine.promote, engine.advance):
            engine.run(duty([self.queue]))

    def start(self, size: int = 100, *, ends: bool = True, **call: Any) -> None:
        jobs = claim(size, **call)
        self.started += [self.passed for job in jobs if job.flags & JobFlag.RATED]
        if ends:
            ack(*jobs)


class TestRate:
    def test_a_claim_says_from_when_on_its_permits_count(self) -> None:
        """What it waits for before that is not taken from the time in which its worker must start the jobs."""
        limited(["api"], LimitValues("calls", rate=10, per_ms=1_000))
        cursor = ClaimCursor()
        before = time.monotonic()
        assert len(claim(1, cursor=cursor)) == 1
        assert before < cursor.admitted_at < time.monotonic()

    def test_a_burst_starts_at_once(self, clock: Clock) -> None:
        limited(["api"] * 60, LimitValues("calls", rate=10, per_ms=1_000, burst=20))
        assert len(claim(100)) == 21
        clock.advance(milliseconds=1_041)
        assert len(claim(100)) == 10

    @pytest.mark.parametrize("what", [
        "nobody claims", "paused", "one at a time", "killed", "clock back", "another key's jobs first",
    ])  # fmt: skip
    def test_permits_do_not_pile_up(self, clock: Clock, queue: int, what: str) -> None:
        """While nobody starts jobs the reaper goes on; then as many start as may, and not what could have before."""
        worker = RatedWorker(clock, queue)
        options: dict[str, Any] = {"lease_ms": 500, "ends": False} if what == "killed" else {}
        limited(["api"] * 300, LimitValues("calls", rate=5, per_ms=1_000))
        step = timedelta(milliseconds=100)
        engine.run(engine.pause("work", paused=what == "paused"))
        for _ in range(40):
            worker.later(step)
            if what == "paused":
                assert claim(10) == []
            if what == "killed":
                worker.start(**options)
        engine.run(engine.pause("work", paused=False))
        for number in range(60):
            worker.later(step)
            if what == "clock back" and number == 20:
                clock.advance(seconds=-30)
                engine.run(engine.mend_floors())
            if what == "another key's jobs first" and number % 5 == 0:
                put(3, priority=9)
                worker.start(1)
            worker.start(1 if what == "one at a time" else 100, **options)
        assert most(worker.started) <= 5
        # 6 s, or 10 s of them; 5 in 1.1 s: there is a look every 0.1 s only. A clock that goes back costs two windows.
        assert len(worker.started) >= {"killed": 44, "clock back": 18}.get(what, 27)

    @pytest.mark.slow
    @pytest.mark.parametrize(("before", "burst"), [
        ("busy", 0), ("paused", 0), ("no worker", 5), ("killed", 0), ("clock back", 5), ("clock ahead", 0),
    ])  # fmt: skip
    def test_work_that_waits_starts_at_the_rate(self, clock: Clock, queue: int, before: str, burst: int) -> None:
        """From a minute in which little or nothing starts on: no window has more, and the rate is used."""
        worker = RatedWorker(clock, queue)
        limited(["api"] * 200, LimitValues("calls", rate=5, per_ms=1_000, burst=burst))
        size = 100 if before in ("killed", "clock back", "clock ahead") else 1
        worker.start(size, ends=before not in ("busy", "killed"))
        engine.run(engine.pause("work", paused=before == "paused"))
        for _ in range(12):
            worker.later(timedelta(seconds=5))
            if before == "paused":
                worker.start()
        engine.run(engine.pause("work", paused=False))
        if before in ("clock back", "clock ahead"):
            clock.advance(seconds=-3600 if before == "clock back" else 3600)
            engine.run(engine.mend_floors())
            worker.later(timedelta(seconds=2))
        begin = worker.passed
        while worker.passed - begin < timedelta(seconds=10):
            worker.start()
            due = FlowTurn.objects.earliest("at").at - clock.now
            worker.later(min(max(due, timedelta(milliseconds=1)), timedelta(milliseconds=100)))
        assert most(worker.started) <= 5 + burst
        assert sum(at >= begin for at in worker.started) >= 0.95 * 5 * 10


class TestFair:
    @pytest.mark.parametrize("fair", [True, False])
    def test_keys_take_turns_or_the_oldest_come_first(self, fair: bool) -> None:
        values = LimitValues("tenant", concurrency=1, fair=fair)
        large, small = limited(["large"] * 10, values), limited(["small"] * 2, values)
        order = []
        while jobs := claim(1):
            order += jobs
            ack(*jobs)
        assert [job.data["key"] for job in order][:4].count("small") == (2 if fair else 0)
        for key, numbers in (("large", large), ("small", small)):
            assert [job.seq for job in order if job.data["key"] == key] == numbers


def test_what_waits_is_counted_and_says_for_what() -> None:
    first, second = limited(["x", "x"])
    put(1, delay_ms=60_000)
    claim_only(first, 1)
    counts = engine.run(engine.counts("work"))
    assert (counts.delayed, counts.waiting, counts.in_flight) == (2, 1, 1)
    assert helpers.read_job(second).state == "waiting"
    held = engine.run(engine.member(second))
    assert held.waits_for == "its turn: key 'x' of the limit 'customer' (1 at a time)"


class TestSlots:
    @pytest.mark.parametrize("before", [True, False])
    def test_a_queue_that_is_deleted_gives_its_slots_back(self, before: bool) -> None:
        make("other")
        limited(["x", "y", "x"])
        assert len(claim(1)) == 1
        if before:
            limited(["x"], queue="other")
            assert claim(10, queue="other") == []
        engine.run(engine.delete("work"))
        if not before:
            limited(["x"], queue="other")
        assert len(claim(10, queue="other")) == 1
        assert Member.objects.count() == 1

    def test_an_expired_and_a_purged_job_that_waited_take_none(self, clock: Clock) -> None:
        first, _ = limited(["x", "x"], ttl_ms=5_000)
        job = claim_only(first)
        clock.advance(seconds=6)
        engine.run(engine.expire([job.queue_id]))
        limited(["x"] * 3)
        assert engine.run(engine.purge("work", states=("ready", "delayed"))) == 3
        (last,) = limited(["x"])
        assert claim(10) == []
        ack(job)
        claim_only(last)
        assert Member.objects.count() == 1

    def test_the_higher_priority_of_a_key_comes_first(self) -> None:
        (low,), (middle,), (high,) = (limited(["x"], priority=priority) for priority in (0, 1, 5))
        for seq in (high, middle, low):
            ack(claim_only(seq, 1))

    def test_a_key_is_any_text(self) -> None:
        keys = ['"', "\\", "{a,b}", "NULL", "é" * 256, "%s", "a\nb", " "]
        limited(keys)
        make(project="tenant")
        enqueue(NewJob(1, limit=Limited(" ", ONE)), project="tenant")
        assert len(claim(10, project="tenant")) == 1, "projects do not share a limit"
        assert len(claim(10)) == len(keys)
        assert sorted(LimitKey.objects.values_list("key", flat=True)) == sorted([*keys, " "])


class TestChanges:
    def test_a_limit_that_sinks_takes_back_what_nobody_has_claimed(self) -> None:
        numbers = limited(["x"] * 8, LimitValues("customer", concurrency=6))
        first = claim(2)
        engine.run(engine.set_limits([LimitValues("customer", concurrency=3)]))
        first += claim(10)
        assert seqs(first) == numbers[:3]
        ack(*first)
        again = claim(10)
        assert seqs(again) == numbers[3:6]
        engine.run(engine.set_limits([LimitValues("customer", concurrency=1)]))
        for job in again:
            assert claim(10) == [], "more of it is taken"
            ack(job)
        claim_only(numbers[6])
        assert differences() == []

    def test_a_rate_that_gets_a_concurrency_counts_what_runs(self, clock: Clock) -> None:
        limited(["x"] * 6, LimitValues("customer", rate=100, per_ms=1_000, burst=1))
        assert len(claim(10)) == 3
        clock.advance(seconds=1)
        engine.run(engine.set_limits([LimitValues("customer", concurrency=4, rate=100, per_ms=1_000, burst=1)]))
        assert len(claim(10)) == 1

    def test_a_job_that_is_tried_again_at_once_pays_for_it(self, clock: Clock) -> None:
        limited(["x"], LimitValues("customer", rate=1, per_ms=60_000))
        for unstarted in (False, True):
            give_back(*claim(10), 0, unstarted=unstarted)
            assert claim(10) == []
            clock.advance(seconds=61)
        assert len(claim(10)) == 1


@pytest.mark.django_db(transaction=True)
def test_a_job_is_not_taken_out_while_its_member_is_being_made(queue: int) -> None:
    """The turn of such a cancellation would find no member, and a slot would be kept for a job that is gone."""
    limited(["x"])
    running = one()
    first, second = limited(["x", "x"])

    def cancel(own: ConnectionExecutor) -> None:
        assert own.run(engine.cancel("work", seqs=[first]))
        own.run(engine.advance([queue]))

    with helpers.open_transaction() as claimer:
        claimer.connection.execute("SELECT 1")
        claimer.run(engine.advance([queue]))
        with helpers.kept_waiting(cancel) as cancelled:
            claimer.connection.commit()
    cancelled.result(60)
    ack(running)
    claim_only(second)


class TestOfAQueue:
    def test_a_slot_comes_back_with_the_lease(self, clock: Clock) -> None:
        engine.run(engine.configure("work", concurrency=2))
        put(4)
        job, _ = claim(10)
        give_back(job, 60_000)
        assert len(claim(10)) == 1
        clock.advance(seconds=31)
        assert len(claim(10)) == 2

    def test_a_limit_that_changes_counts_at_once(self) -> None:
        engine.run(engine.configure("work", concurrency=2))
        make("other")
        put(20)
        put(3, queue="other")
        first = claim(1)
        assert [job.queue for job in claim(10, queue=["work", "other"])] == ["work", *["other"] * 3]
        assert claim(10) == []
        ack(*first)
        for concurrency, more in ((2, 1), (5, 3), (1, 0), (0, 10)):
            engine.run(engine.configure("work", concurrency=concurrency))
            assert len(claim(10)) == more

    def test_jobs_that_came_back_to_an_old_place_and_tags_count_too(self) -> None:
        engine.run(engine.configure("work", concurrency=1))
        put(2, tag="a")
        give_back(*claim(10))
        (job,) = claim(10)
        assert claim(10, tag="a") == []
        ack(job)
        assert len(claim(10, tag="a")) == 1

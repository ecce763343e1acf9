"""Rates beside whatever else waits: permits do not keep, so what they admit comes first, and at its time."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import LeasedJob, LimitValues
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.leases.floor import ClaimCursor
from django_leasequeue.enums import JobFlag
from django_leasequeue.models import FlowTurn, LimitKey
from tests.engine.flow import ack, limited
from tests.engine.helpers import claim, claim_only, give_back, make, put

pytestmark = pytest.mark.django_db

RATE, PER_MS = 12, 2_000
CALLS = LimitValues("calls", rate=RATE, per_ms=PER_MS)


def cursor_of(clock: Clock) -> ClaimCursor:
    def seconds() -> float:
        return clock.now.timestamp()

    return ClaimCursor(clock=seconds)


def rated(jobs: list[LeasedJob]) -> int:
    return sum(bool(job.flags & JobFlag.RATED) for job in jobs)


class BusyWorker:
    """Claims as a fetcher does: many jobs now and then, and between these what a rate lets start now."""

    def __init__(self, clock: Clock, *queues: str) -> None:
        self._clock, self._queues = clock, queues
        self._passed = 0
        self._cursor = cursor_of(clock)
        self.started: list[int] = []
        self.others = 0

    def work(self, seconds: float, *, every_ms: int, size: int = 20) -> None:
        end = self._passed + int(seconds * 1_000)
        while self._passed < end:
            if self._passed % every_ms == 0:
                self._claim(self._queues, size)
            elif due := self._cursor.due():
                self._claim(due, 1, others=False)
            self._passed += 10
            self._clock.advance(milliseconds=10)

    def _claim(self, queues: Sequence[str], size: int, *, others: bool = True) -> None:
        jobs = claim(size, list(queues), cursor=self._cursor, starts=1, others=others)
        count = rated(jobs)
        assert count <= 1
        if count and len(jobs) < size and others:  # others come with the next claim
            jobs += claim(size - len(jobs), list(queues), cursor=self._cursor, starts=0)
        self.started += [self._passed] * count
        self.others += len(jobs) - count
        ack(*jobs)

    @property
    def most(self) -> int:
        """The most starts in a window of the rate's length."""
        return max(sum(first <= at < first + PER_MS for at in self.started) for first in self.started)


def backlog(where: str) -> None:
    make("busy")
    make(priority_order="desc", priority_min=0, priority_max=9)
    if where == "another queue":
        put(2_500, queue="busy")
    else:
        put(2_500, priority=9 if where == "a higher priority" else 0)


@pytest.mark.parametrize(("every_ms", "size"), [(50, 20), pytest.param(500, 200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("where", ["another queue", "the same queue", "a higher priority"])
def test_a_rate_is_kept_whatever_else_waits(clock: Clock, where: str, every_ms: int, size: int) -> None:
    """A permit does not wait for the next large claim."""
    backlog(where)
    limited(["api"] * 60, CALLS)
    worker = BusyWorker(clock, "busy", "work")
    worker.work(5, every_ms=every_ms, size=size)
    assert len(worker.started) >= 0.9 * RATE * 5_000 / PER_MS
    assert worker.most <= RATE
    assert worker.others > 1_900, "all else goes on"


def test_a_claim_of_ones_own_keeps_the_order(clock: Clock) -> None:
    backlog("another queue")
    limited(["api"] * 5, CALLS)
    assert {job.queue for job in claim(10, ["busy", "work"])} == {"busy"}
    assert rated(claim(1)) == 1, "what it did not take has cost no permit"


def test_a_claim_of_what_is_due_brings_nothing_else(clock: Clock) -> None:
    backlog("the same queue")
    (seq,) = limited(["api"], CALLS)
    claim_only(seq, starts=3, others=False)
    assert claim(10, starts=3, others=False) == []


def test_without_a_thread_for_it_a_rate_pays_nothing(clock: Clock) -> None:
    backlog("the same queue")
    limited(["api"] * 3, CALLS)
    assert rated(claim(10, starts=0)) == 0
    assert LimitKey.objects.get().started is None
    assert rated(claim(1, starts=1)) == 1


def test_of_many_keys_no_more_are_admitted_than_start_and_they_take_turns(clock: Clock) -> None:
    """The one whose last start is the longest ago comes first; none has to be given back."""
    make()
    put(100)
    limited([f"k{n % 30}" for n in range(90)], LimitValues("calls", rate=1, per_ms=100))
    seen: list[str] = []
    for _ in range(15):
        jobs = claim(4, starts=2)
        keys = [job.data["key"] for job in jobs if job.flags & JobFlag.RATED]
        assert len(keys) == 2
        seen += keys
        clock.advance(milliseconds=5)
    assert len(set(seen)) == 30


def test_a_rate_with_a_concurrency_waits_for_the_slot_and_then_comes_first(clock: Clock) -> None:
    backlog("the same queue")
    limited(["api"] * 3, LimitValues("calls", concurrency=1, rate=RATE, per_ms=PER_MS))
    (first,) = claim(3, starts=3)
    assert rated([first]) == 1
    clock.advance(seconds=1)
    assert rated(claim(3, starts=3)) == 0
    ack(first)
    clock.advance(seconds=1)
    (second,) = claim(3, starts=3)
    assert rated([second]) == 1


def test_a_burst_comes_first_as_far_as_it_starts(clock: Clock) -> None:
    backlog("another queue")
    limited(["api"] * 30, LimitValues("calls", rate=RATE, per_ms=PER_MS, burst=8))
    assert [rated(claim(10, ["busy", "work"], starts=4)) for _ in range(4)] == [4, 4, 1, 0]


def test_fair_keys_come_first_without_hiding_what_waits_before_them(clock: Clock) -> None:
    """Their place is behind all that waits: the cursor of a busy claimer does not go there."""
    backlog("the same queue")
    limited(["api"], LimitValues("calls", concurrency=3, rate=RATE, per_ms=PER_MS, fair=True))
    cursor = cursor_of(clock)
    assert rated(claim(2, starts=1, cursor=cursor)[:1]) == 1
    assert len(claim(20, starts=1, cursor=cursor)) == 20


def test_one_that_used_up_its_deliveries_is_no_obstacle(clock: Clock) -> None:
    make("busy")
    put(100, queue="busy")
    make(max_deliveries=1, dead_letter="self")
    put(1_200)
    spent, good = limited(["api"] * 2, LimitValues("calls", rate=RATE, per_ms=PER_MS, burst=4))
    job = claim_only(spent, 1, queue=["busy", "work"], starts=1)
    clock.advance(seconds=60)
    engine.run(engine.sweep([job.queue_id]))
    found = [job.seq for _ in range(3) for job in claim(2, ["busy", "work"], starts=1)]
    assert (good in found, spent in found) == (True, False)


class TestTheNextTurn:
    def test_a_look_says_when_it_is_due(self, clock: Clock) -> None:
        make()
        make("other")
        limited(["api"] * 3, CALLS)
        cursor = cursor_of(clock)
        assert len(claim(5, ["other", "work"], starts=1, cursor=cursor)) == 1
        assert cursor.cut, "the next claim looks what else there is"
        assert claim(5, ["other", "work"], starts=1, cursor=cursor) == []
        assert cursor.due() == []
        assert 0.05 < cursor.until_turn() <= PER_MS / RATE / 1_000
        clock.advance(milliseconds=170)
        assert cursor.due() == ["work"]

    def test_a_remembered_look_does_not_hide_it(self, clock: Clock) -> None:
        make()
        put(200)
        limited(["api"] * 3, CALLS)
        cursor = cursor_of(clock)
        assert [len(claim(10, starts=1, cursor=cursor)) for _ in range(2)] == [1, 10]
        assert cursor.looks(["work"])
        clock.advance(milliseconds=170)
        assert not cursor.looks(["work"])

    def test_it_is_forgotten_with_its_queue(self, clock: Clock) -> None:
        make()
        limited(["api"] * 3, CALLS)
        cursor = cursor_of(clock)
        claim(5, starts=1, cursor=cursor)
        engine.run(engine.delete("work"))
        clock.advance(seconds=1)
        claim(5, cursor.due(), starts=1, cursor=cursor, strict=False)
        assert (cursor.due(), cursor.until_turn()) == ([], float("inf"))

    def test_a_paused_queue_has_none(self, clock: Clock) -> None:
        make()
        limited(["api"] * 3, CALLS)
        engine.run(engine.pause("work"))
        cursor = cursor_of(clock)
        claim(5, starts=1, cursor=cursor)
        assert cursor.until_turn() == float("inf")

    def test_a_clock_that_goes_back_is_mended(self, clock: Clock) -> None:
        make()
        limited(["api"] * 30, CALLS)
        cursor = cursor_of(clock)
        claim(5, starts=1, cursor=cursor)
        clock.advance(seconds=-3_600)
        engine.run(engine.mend_floors())
        assert FlowTurn.objects.get().at <= clock.now + timedelta(milliseconds=2 * PER_MS)
        worker = BusyWorker(clock, "work")
        worker.work(2 * PER_MS / 1_000, every_ms=500)
        worker.work(PER_MS / 1_000, every_ms=500)
        assert len(worker.started) >= 0.9 * RATE


def test_what_is_given_back_before_it_started_waits_for_its_rate_again(clock: Clock) -> None:
    make()
    limited(["api"], CALLS)
    give_back(*claim(1, starts=1), 0, unstarted=True)
    assert claim(1, starts=1) == []
    clock.advance(milliseconds=170)
    assert claim(1, starts=1)[0].deliveries == 1

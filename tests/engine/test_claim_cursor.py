"""The cursor of a busy claimer: it skips what it took a moment ago, and never for long."""

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, LeasedJob, NewJob
from django_leasequeue.engine.leases.floor import ClaimCursor
from django_leasequeue.models import JobState, LiveJob
from tests.engine.helpers import NODE, OTHER, delivered, enqueue, make, open_transaction, own_connection, put, seqs

pytestmark = pytest.mark.django_db(transaction=True)


class Claimer(ConnectionExecutor):
    """A busy claimer with a clock for its cursor, and what it sent for its last claim."""

    def __init__(self, executor: ConnectionExecutor) -> None:
        super().__init__(executor.connection)
        self.sent: list[str] = []
        self.time = 0.0
        self.cursor = ClaimCursor(max_age=0.5, clock=lambda: self.time)

    def fetch(self, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        self.sent.append(name)
        return super().fetch(name, params)

    def claim(self, size: int = 2) -> list[LeasedJob]:
        self.sent.clear()
        return self.run(engine.claim("work", NODE, size, cursor=self.cursor))


@pytest.fixture
def claimer(transactional_db: None) -> Iterator[Claimer]:
    make("work")
    with own_connection() as executor:
        yield Claimer(executor)


def test_announced_jobs_are_taken_without_a_look_but_not_for_long(claimer: Claimer) -> None:
    claimer.cursor = ClaimCursor(max_age=0.5, clock=lambda: claimer.time, eager=True)
    assert claimer.claim() == []
    sent = []
    for time_passed in (0.0, 0.4, 0.2):
        claimer.time += time_passed
        (number,) = put(1)
        assert seqs(claimer.claim()) == [number]
        assert claimer.cursor.cut
        sent.append(claimer.sent[:])
        claimer.cursor.announced()
    assert claimer.claim() == []
    assert [*sent, claimer.sent] == [["claim"], ["claim"], ["claim"], ["claim_look"]]


def test_a_full_claim_lays_it_and_one_statement_is_enough(claimer: Claimer) -> None:
    numbers = put(6)
    for start in (0, 2, 4):
        assert seqs(claimer.claim()) == numbers[start : start + 2]
        assert claimer.sent == (["claim"] if start else ["claim_look", "claim_note", "claim"])
    (look,) = claimer.cursor.looks(["work"])
    assert look.lows == [numbers[5] + 1]


def test_what_comes_back_or_late_below_it_is_found_when_it_is_old_or_jobs_run_short(claimer: Claimer) -> None:
    with open_transaction() as slow:
        (late,) = slow.run(engine.enqueue("work", [NewJob()]))
        numbers = put(9)
        claimer.claim()
        slow.connection.commit()
    engine.run(engine.nack(numbers[:1], NODE))
    assert seqs(claimer.claim()) == numbers[2:4]
    claimer.time = 0.6
    assert seqs(claimer.claim()) == [late.seq, numbers[0]]
    assert seqs(claimer.claim(4)) == numbers[4:8]
    engine.run(engine.nack(numbers[4:5], NODE))
    assert sorted(seqs(claimer.claim())) == [numbers[4], numbers[8]]
    assert claimer.claim() == []
    assert claimer.cursor.looks(["work"]) == [], "a claim that is not full forgets it"


def test_a_higher_priority_is_not_behind_it_but_one_that_is_new_until_it_is_old(claimer: Claimer) -> None:
    (first,) = enqueue(NewJob(priority=8))
    numbers = put(6)
    assert seqs(claimer.claim()) == [first.seq, numbers[0]]
    (urgent,) = enqueue(NewJob(priority=8))
    assert seqs(claimer.claim()) == [urgent.seq, numbers[1]]
    (new,) = enqueue(NewJob(priority=9))
    claimer.time = 0.6
    assert seqs(claimer.claim())[0] == new.seq


def test_what_comes_due_waits_no_longer(clock, claimer: Claimer) -> None:
    lost = put()[0]
    engine.run(engine.claim("work", OTHER, lease_ms=1_000))
    (scheduled,) = enqueue(NewJob(delay_ms=1_000))
    numbers = put(20)
    claimer.claim()
    clock.advance(seconds=2)
    assert seqs(claimer.claim()) == numbers[2:4]
    assert claimer.sent == ["claim"]
    claimer.time = 0.6
    assert seqs(claimer.claim()) == [lost, scheduled.seq]


def test_claims_of_finished_jobs_cost_a_busy_claimer_nothing(clock, claimer: Claimer) -> None:
    """Their rows come due all the time; a look at them with every claim would make each one four statements."""
    put(40)
    for _ in range(18):
        jobs = claimer.claim()
        engine.run(engine.ack(seqs(jobs), NODE))
        clock.advance(seconds=2)
        if claimer.time:
            assert claimer.sent == ["claim"]
        claimer.time += 0.01


def test_poison_behind_it_is_moved_aside(claimer: Claimer) -> None:
    engine.run(engine.configure("work", max_deliveries=1, dead_letter="self"))
    put(2)
    (poison,) = put(1)
    good = put(2)
    claimer.claim()
    delivered(1, poison)
    assert seqs(claimer.claim()) == good


class TestConnectionFloors:
    @pytest.fixture
    def claimer(self, claimer: Claimer) -> Claimer:
        claimer.cursor = ClaimCursor(max_age=0.0, clock=time.monotonic)
        return claimer

    def floor(self, claimer: Claimer) -> int:
        return int(claimer.cursor.floors.parameters()["floors"].strip("{}") or 0)

    def test_they_rise_with_the_claims_and_when_nothing_is_ready(self, claimer: Claimer) -> None:
        numbers = put(800)
        for _ in range(4):
            claimer.claim(200)
        assert numbers[200] <= self.floor(claimer) <= numbers[600]
        for _ in range(2):
            claimer.claim(200)
        assert self.floor(claimer) > numbers[-1]

    @pytest.mark.parametrize("newest", [False, True])
    def test_they_wait_for_what_may_be_committed_below_them(self, claimer: Claimer, newest: bool) -> None:
        """Also for the newest transaction of all, since whose begin nothing has ended: it is in no snapshot."""
        if newest:
            put(110)
            claimer.claim(200)
        with open_transaction() as slow:
            (late,) = slow.run(engine.enqueue("work", [NewJob()]))
            put(0 if newest else 800)
            for _ in range(6):
                claimer.claim(200)
                assert self.floor(claimer) <= late.seq
            slow.connection.commit()
        assert seqs(claimer.claim()) == [late.seq]

    def test_those_of_another_connection_count_for_nothing(self, claimer: Claimer) -> None:
        (job,) = put(1)
        queue_id = LiveJob.objects.get(seq=job).queue_id
        high = {"ids": f"{{{queue_id}}}", "places": "{0}", "floors": f"{{{job + 9}}}"}
        place = {"project": "", "queues": "{work}", "jitter": 0, "head": 0, **high}
        pid = claimer.connection.info.backend_pid
        (started,) = claimer.connection.execute("SELECT pg_postmaster_start_time()").fetchone()
        mine, of_another, before_a_restart = (pid, started), (pid + 1, started), (pid, started - timedelta(days=1))
        fresh = [
            claimer.fetch("claim_look", {**place, "pid": given, "started": since})[0][6]
            for given, since in (mine, of_another, before_a_restart)
        ]
        assert fresh == [False, True, True]


@pytest.mark.parametrize("place", range(1, 9))
def test_a_claim_whose_transaction_is_undone_is_made_again(place: int, claimer: Claimer) -> None:
    """And what it has seen of what is undone hides no job."""
    engine.run(engine.configure("work", concurrency=5))
    numbers = put(9)
    fetch = claimer.fetch

    def fail_once(name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if len(claimer.sent) == place - 1:
            claimer.sent.append("undone")
            claimer.connection.execute("DO $$BEGIN RAISE EXCEPTION 'undone' USING ERRCODE = '40P01'; END$$")
        return fetch(name, params)

    claimer.fetch = fail_once  # type: ignore[method-assign]
    assert seqs(claimer.claim(3)) == numbers[:3]
    assert seqs(claimer.claim(9)) == numbers[3:5]
    assert LiveJob.objects.filter(state=JobState.LEASED).count() == 5

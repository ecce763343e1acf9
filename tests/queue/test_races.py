"""What two connections do to one job at the same moment, many times over."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

import psycopg
import pytest

from django_leasequeue import Queue, engine
from django_leasequeue.engine.jobs import replies, results
from django_leasequeue.engine.runner import drive
from django_leasequeue.enums import EventKind
from django_leasequeue.models import JobEvent
from django_leasequeue.queue.enqueue import CancelStatus
from django_leasequeue.twins import steps_of
from tests.support.waiting import eventually

ROUNDS = 1_000
#: Seconds that one side lets the other one go ahead, at most: about what a statement takes.
HEAD_START = 0.001

pytestmark = pytest.mark.django_db(transaction=True)


class Rival:
    """Does the same thing in every round, on a connection and in a thread of its own, beside the caller.

    Args:
        dsn: of the database.
        make: makes the operation of a round.
    """

    def __init__(self, dsn: str, make: Any) -> None:
        self._dsn = dsn
        self._make = make
        self._line = threading.Barrier(2, timeout=30)
        self._random = random.Random(1)
        self.answer: Any = None
        self._stop = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Rival:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop = True
        if error[0] is None:
            self._line.wait()
        else:
            self._line.abort()
        self._thread.join(30)

    def _run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            executor = engine.ConnectionExecutor(connection)
            while True:
                try:
                    self._line.wait()
                    if self._stop:
                        return
                    _wait(self._random)
                    self.answer = executor.run(self._make())
                    self._line.wait()
                except threading.BrokenBarrierError:
                    return

    def begin(self) -> None:
        self._line.wait()

    def end(self) -> Any:
        self._line.wait()
        return self.answer


def _wait(chance: random.Random) -> None:
    """Lose up to a statement's time, without giving the processor away: who is first differs from round to round."""
    end = time.perf_counter() + chance.random() * HEAD_START
    while time.perf_counter() < end:
        pass


@pytest.mark.slow
def test_cancel_against_claim_a_thousand_rounds_never_both(test_dsn: str) -> None:
    queue = Queue("races", preset="jobqueue", node="canceller")
    queue.create()
    chance = random.Random(2)
    seen: Counter[tuple[str, bool]] = Counter()
    with (
        Rival(test_dsn, lambda: engine.claim("races", "claimer")) as claimer,
        psycopg.connect(test_dsn, autocommit=True) as connection,
    ):
        executor = engine.ConnectionExecutor(connection)
        for number in range(ROUNDS):
            key = f"id-{number}"
            assert drive(executor, steps_of(Queue.enqueue)(queue, number, key=key)).status == "queued"
            claimer.begin()
            _wait(chance)
            answer = drive(executor, steps_of(Queue.cancel)(queue, key))
            jobs = claimer.end()
            seen[str(answer), bool(jobs)] += 1
            assert (answer, len(jobs)) in ((CancelStatus.CANCELLED, 0), (CancelStatus.PROCESSING, 1)), f"round {number}"
            # The loser sees what the winner did.
            status = drive(executor, steps_of(Queue.get_status)(queue, key))
            assert (status and status.state) == ("processing" if jobs else None)
            for job in jobs:
                settled = executor.run(engine.finish([engine.Ending(job.seq, job.token)], "claimer"))
                assert settled.ok == [job.seq]
    assert sum(seen.values()) == ROUNDS
    # Both won now and then: the two did meet.
    assert min(seen.values()) > 0, seen
    assert len(seen) == 2
    kinds = Counter(JobEvent.objects.values_list("seq", "kind"))
    assert set(kinds.values()) == {1}
    claimed = {seq for seq, kind in kinds if kind == EventKind.CLAIMED}
    cancelled = {seq for seq, kind in kinds if kind == EventKind.CANCELLED}
    assert len(claimed) + len(cancelled) == ROUNDS
    assert not claimed & cancelled


def meet(dsn: str, watcher: psycopg.Connection, one: Any, other: Any) -> Any:
    """Do one thing, and beside it another that waits for the end of its transaction; return what that got."""
    with psycopg.connect(dsn) as first:
        engine.ConnectionExecutor(first).run(one)
        with Rival(dsn, lambda: other) as rival:
            rival.begin()
            eventually(lambda: watcher.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone(), "somebody waits")
            first.commit()
            return rival.end()


@pytest.mark.parametrize("unusual", [False, True])
def test_who_joins_while_the_job_ends_is_told_or_too_late(test_dsn: str, unusual: bool) -> None:
    """An ending that waits for the lock of a join tells its channel; a join that waits for an ending finds nothing."""
    engine.run(engine.create("joined", preset="jobqueue", result_ttl_ms=0))
    with psycopg.connect(test_dsn, autocommit=True) as listener:
        listener.execute("LISTEN late")
        job = _held(unusual)
        joining, ending = replies.join(job.seq, "late"), engine.finish([engine.Ending(job.seq, job.token)], "worker")
        assert meet(test_dsn, listener, joining, ending).ok == [job.seq]
        [told] = listener.notifies(timeout=60, stop_after=1)
        assert told.payload.split(":")[0] == str(job.seq)
        assert [found.state for found in engine.run(results.status("joined", seqs=[job.seq]))] == ["completed"]
        job = _held(unusual)
        joining, ending = replies.join(job.seq, "late"), engine.finish([engine.Ending(job.seq, job.token)], "worker")
        assert meet(test_dsn, listener, ending, joining) is None


def test_a_ttl_that_is_set_while_the_job_ends_counts(test_dsn: str) -> None:
    engine.run(engine.create("kept", preset="jobqueue", result_ttl_ms=1_000))
    with psycopg.connect(test_dsn, autocommit=True) as watcher:
        for sets in (True, False):
            job = _held(True, "kept")
            ending = engine.finish([engine.Ending(job.seq, job.token)], "worker")
            setting = results.update_result_ttl("kept", 3_600_000, seq=job.seq)
            answer = meet(test_dsn, watcher, *((setting, ending) if sets else (ending, setting)))
            assert answer.ok == [job.seq] if sets else answer == (job.seq, True)
            (found,) = engine.run(results.status("kept", seqs=[job.seq]))
            assert (found.expires_at - found.finished_at).total_seconds() > 3_000


def _held(unusual: bool, queue: str = "joined") -> engine.LeasedJob:
    """Claim a new job; an unusual one is settled by the statement that looks at the job."""
    options = {"result_ttl_ms": 2_000} if unusual else {}
    engine.run(engine.enqueue(queue, [engine.NewJob(**options)]))
    return engine.run(engine.claim(queue, "worker"))[0]

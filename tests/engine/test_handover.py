"""A slot that comes free: the statement that ends the job gives it to the next one."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, Ending, Failure, LeasedJob, LimitValues, NewJob, Release
from django_leasequeue.models import FlowTurn, LimitKey, Member, Queue, Ready
from tests.engine.flow import ack, differences, limited, names, node, start, status
from tests.engine.helpers import (
    NODE,
    claim,
    enqueue,
    kept_waiting,
    make,
    open_transaction,
    own_connection,
    put,
    run,
    seqs,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def listening() -> Iterator[ConnectionExecutor]:
    with own_connection() as own:
        own.connection.execute("LISTEN leasequeue")
        yield own


def heard(own: ConnectionExecutor) -> set[str]:
    """Of which queues a listener of all was told since it was asked last."""
    own.connection.execute("NOTIFY leasequeue, 'all that was told before'")
    told: set[str] = set()
    for note in own.connection.notifies(timeout=300):
        if note.payload.startswith("all that"):
            break
        told.add(note.payload)
    for (queue_id,) in Queue.objects.values_list("pk"):
        own.connection.execute("SELECT pg_advisory_lock_shared(1280657731, %s::int)", [queue_id])
    return {queue.name for queue in Queue.objects.all() if f"q{queue.pk}" in told}


def waiting_jobs() -> tuple[LeasedJob, int, int]:
    """A job that runs, and the two that wait for its slot, in this queue and in another one."""
    make()
    make("other")
    (first, second) = limited(["x", "x"])
    (running,) = claim(10)
    assert running.seq == first
    (third,) = limited(["x"], queue="other")
    assert claim(10, queue="other") == []
    return running, second, third


def check_order(listening: ConnectionExecutor, second: int, third: int) -> None:
    assert [row.seq for row in Ready.objects.all()] == [second]
    assert not FlowTurn.objects.exists()
    assert heard(listening) == {"work"}
    (job,) = claim(10)
    ack(job)
    assert [row.seq for row in Ready.objects.all()] == [third]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("result_ttl_ms", [0, 1000])
def test_the_next_one_is_ready_with_the_ack(listening: ConnectionExecutor, size: int, result_ttl_ms: int) -> None:
    first, second, third = waiting_jobs()
    engine.run(engine.configure("work", result_ttl_ms=result_ttl_ms))
    plain = [] if size == 1 else [*put(1), *seqs(claim(1, queue="other"))]
    held = [first, *(claim(1) if plain else [])]
    heard(listening)
    ack(*held)
    check_order(listening, second, third)
    (other,) = claim(10, queue="other")
    assert heard(listening) == {"other"}
    assert differences() == []
    ack(other)
    assert not Member.objects.exists()


def test_the_workflow_of_a_job_of_the_same_claim_hears_of_its_end() -> None:
    make()
    limited(["x"])
    uid = start(node("a"), node("b", 0))
    ack(*claim(10))
    assert names(claim(10)) == ["b"]
    assert (status(uid)[:3], differences()) == (("running", 1, 1), [])


def test_an_ack_waits_for_nobody_and_keeps_nobody_waiting() -> None:
    first, second, third = waiting_jobs()
    with open_transaction() as other:
        other.connection.execute("SELECT FROM leasequeue_limitkey FOR UPDATE")
        ack(first)
        assert [row.seq for row in Ready.objects.all()] == [second]
    (job,) = claim(10)
    with open_transaction() as other:
        other.connection.execute("SELECT FROM leasequeue_limitkey FOR UPDATE")
        other.connection.execute("SELECT FROM leasequeue_member FOR UPDATE")
        ack(job)
        assert not Ready.objects.exists()
    assert seqs(claim(10, queue=["work", "other"])) == [third]  # a turn was left for it
    assert differences() == []


def test_an_ack_in_a_transaction_locks_no_key() -> None:
    first, second, _ = waiting_jobs()
    with open_transaction() as other:
        other.run(engine.finish([Ending(first.seq, first.token)], NODE))
        run("SELECT FROM leasequeue_limitkey FOR UPDATE NOWAIT")
        other.connection.commit()
    assert seqs(claim(10, queue=["work", "other"])) == [second]


def test_one_at_a_time_the_first_that_waits_is_not_passed_over() -> None:
    make()
    _, second, third = limited(["x"] * 3)
    (running,) = claim(10)
    with open_transaction() as other:
        other.connection.execute("SELECT FROM leasequeue_member WHERE seq = %s FOR UPDATE", [second])
        ack(running)
        assert not Ready.objects.exists()
    (running,) = claim(10)
    assert running.seq == second
    ack(running)
    assert seqs(claim(10)) == [third]


def test_acks_at_the_same_moment_give_their_slots_to_different_jobs() -> None:
    make()
    queued = limited(["x"] * 4, LimitValues("customer", concurrency=2))
    first, second = *claim(1), *claim(1)
    with ack_under_way(first) as other:
        ack(second)
        assert [row.seq for row in Ready.objects.all()] == queued[3:]
        other.connection.commit()
    assert sorted(seqs(claim(10))) == queued[2:]
    assert differences() == []


def test_what_a_broken_off_ack_had_passed_on_is_not_forgotten() -> None:
    make()
    *_, last = limited(["x"] * 3, LimitValues("customer", concurrency=2))
    first, second = *claim(1), *claim(1)
    with ack_under_way(first) as other:
        ack(second)
        assert not Ready.objects.exists()
        other.connection.rollback()
    assert seqs(claim(10)) == [last]
    assert differences() == []


def test_a_job_that_is_just_brought_under_its_limit_gets_the_slot() -> None:
    queue_id = make()
    limited(["x"])
    (running,) = claim(10)
    (second,) = limited(["x"])
    with open_transaction() as claimer:
        claimer.connection.execute("SELECT 1")
        assert claimer.run(engine.advance([queue_id])) == 1
        ack(running)
        claimer.connection.commit()
    assert seqs(claim(10)) == [second]


@pytest.mark.parametrize("between", [None, 4])
def test_no_slot_is_passed_on_while_more_are_taken_than_there_may_be(between: int | None) -> None:
    make()
    queued = limited(["x"] * 7, LimitValues("customer", concurrency=2))
    running = claim(10)
    if between is None:  # without a limit all start
        engine.run(engine.set_limits([LimitValues("customer")]))
        running += claim(3)
    else:
        engine.run(engine.set_limits([LimitValues("customer", concurrency=between)]))
        running += claim(10)
        engine.run(engine.set_limits([LimitValues("customer", concurrency=1)]))
        claim(10)
    engine.run(engine.set_limits([LimitValues("customer", concurrency=2)]))
    ack(running[0])
    assert claim(10) == []
    ack(running[1])
    assert claim(10) == []
    ack(*running[2:-1])
    (job,) = claim(10)
    assert LimitKey.objects.get().fits == 2
    ack(job)
    # It is passed on again, by the ack itself.
    assert [row.seq for row in Ready.objects.all()] == [queued[queued.index(job.seq) + 1]]
    assert differences() == []


@contextmanager
def ack_under_way(job: LeasedJob) -> Iterator[ConnectionExecutor]:
    """The statement of an ack has run as the whole of a transaction, but for its commit."""
    with open_transaction() as other:
        other.connection.execute("SELECT set_config('leasequeue.alone', 'on', true)")
        other.run(engine.finish([Ending(job.seq, job.token)], NODE))
        yield other


def test_one_that_changes_in_this_moment_has_the_slot_that_it_is_given() -> None:
    make()
    limited(["x", "y", "x", "y"], LimitValues("customer", concurrency=1, fair=True))
    running = claim(10)
    with open_transaction() as other:
        # Of a fair limit each gets a new place: the ack waits for its number, with one of the two in its hand.
        other.connection.execute("ALTER SEQUENCE leasequeue_job_seq_seq CACHE 1")
        with kept_waiting(
            lambda own: own.run(engine.finish([Ending(job.seq, job.token) for job in running], NODE))
        ) as ended:
            run(
                "UPDATE leasequeue_member SET place = place WHERE seq ="
                " (SELECT seq FROM leasequeue_member WHERE waits FOR UPDATE SKIP LOCKED)"
            )
            other.connection.rollback()
            ended.result()
    assert list(Member.objects.values_list("taken", "waits")) == [(True, False), (True, False)]
    assert (len(claim(10)), differences()) == (2, [])


@pytest.mark.parametrize("fair", [False, True])
def test_one_that_is_tried_again_later_gives_its_slot_away(listening: ConnectionExecutor, fair: bool) -> None:
    make()
    first, second, third = limited(["x", "x", "x"], LimitValues("customer", concurrency=1, fair=fair))
    (running,) = claim(10)
    heard(listening)
    engine.run(engine.release([Release(first, running.token, delay_ms=60_000, failure=Failure("E", "no"))], NODE))
    check_order(listening, second, third)
    assert seqs(claim(10)) == [third]
    assert differences() == []


def test_a_turn_is_taken_where_the_next_one_waits(listening: ConnectionExecutor) -> None:
    first, second, third = waiting_jobs()
    engine.run(engine.cancel("work", seqs=[second]))
    assert claim(10) == []
    heard(listening)
    engine.run(engine.delete("work"))
    assert heard(listening) == {"other"}
    assert seqs(claim(10, queue="other")) == [third]
    assert not Member.objects.filter(seq=first.seq).exists()


def test_one_that_is_being_cancelled_is_looked_at_by_a_claimer() -> None:
    first, second, third = waiting_jobs()
    with open_transaction() as other:
        other.run(engine.cancel("work", seqs=[second]))
        ack(first)
        assert not Ready.objects.exists()
        other.connection.commit()
    assert seqs([*claim(10), *claim(10, queue="other")]) == [third]


def test_rates_and_old_snapshots_are_left_to_claimers() -> None:
    first, second, _ = waiting_jobs()
    with own_connection() as own:
        own.connection.execute("SET default_transaction_isolation = 'repeatable read'")
        own.run(engine.finish([Ending(first.seq, first.token)], NODE))
    assert not Ready.objects.exists()
    assert seqs(claim(10)) == [second]
    make("rated")
    rated, _ = limited(["r"] * 2, LimitValues("r", concurrency=1, rate=1, per_ms=60_000), queue="rated")
    (job,) = claim(10, queue="rated")
    assert job.seq == rated
    ack(job)
    assert not Ready.objects.exists()
    assert claim(10, queue="rated") == []


def test_a_queue_s_slot_wakes_a_claimer_and_who_finds_none_takes_no_lock(listening: ConnectionExecutor) -> None:
    make(concurrency=1)
    put(3)
    (job,) = claim(1)
    heard(listening)
    with open_transaction() as other:
        other.connection.execute(f"SELECT pg_advisory_xact_lock(1280657737, {job.queue_id})")
        assert claim(1) == []
    ack(job)
    assert heard(listening) == {"work"}
    assert not FlowTurn.objects.exists()
    assert len(claim(3)) == 1


@pytest.mark.parametrize("by_key", [False, True])
def test_claimers_at_the_same_moment_do_not_overdraw_it(by_key: bool) -> None:
    count = 120
    make("work", concurrency=0 if by_key else 3)
    make("other", concurrency=0 if by_key else 3)
    three = LimitValues("three", concurrency=3)
    for name in ["work", "other"]:
        jobs = [NewJob({}, limit=engine.Limited("x", three) if by_key else None) for _ in range(count // 2)]
        enqueue(*jobs, queue=name)
    lock, done = threading.Lock(), []
    running: dict[int, str] = {}
    most = 0

    def work() -> None:
        nonlocal most
        node = threading.current_thread().name
        with own_connection() as own:
            while len(done) < count:
                jobs = own.run(engine.claim(["work", "other"], node, 2))
                with lock:
                    running.update({job.seq: "x" if by_key else job.queue for job in jobs})
                    most = max([most, *(list(running.values()).count(key) for key in set(running.values()))])
                for job in jobs:
                    with lock:
                        running.pop(job.seq)
                    own.run(engine.finish([Ending(job.seq, job.token)], node))
                    done.append(job.seq)

    with ThreadPoolExecutor(6) as threads:
        for worker in [threads.submit(work) for _ in range(6)]:
            worker.result(300)
    assert len(done) == len(set(done)) == count
    assert most <= 3
    assert differences() == []

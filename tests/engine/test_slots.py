"""A slot that comes free: the end of a job leaves a turn, and the next claimer lets the next job of the key start."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest
from django.db import connection, transaction

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, Ending, LeasedJob, LimitValues
from django_leasequeue.engine.leases.floor import ClaimCursor
from django_leasequeue.models import Claim, FlowTurn, Member, Queue, Ready
from django_leasequeue.words import named
from tests.engine import helpers
from tests.engine.flow import NO, ack, differences, limited, names, node, start, status
from tests.engine.helpers import NODE, claim, claim_only, give_back, make, one, open_transaction, put, run, seqs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def listening() -> Iterator[ConnectionExecutor]:
    with helpers.own_connection() as own:
        ((channel,),) = own.connection.execute(named("SELECT {channel.jobs}"))
        own.connection.execute(f"LISTEN {channel}")
        yield own


def heard(own: ConnectionExecutor) -> set[str]:
    """Of which queues a listener of all was told since it was asked last."""
    own.connection.execute(named("SELECT pg_notify({channel.jobs}, 'all that was told before')"))
    told: set[str] = set()
    for note in own.connection.notifies(timeout=300):
        if note.payload.startswith("all that"):
            break
        told.add(note.payload)
    for (queue_id,) in Queue.objects.values_list("pk"):
        own.connection.execute(named("SELECT pg_advisory_lock_shared({lock.listeners}, %s::int)"), [queue_id])
    return {queue.name for queue in Queue.objects.all() if f"q{queue.pk}" in told}


def waiting_jobs() -> tuple[LeasedJob, int, int]:
    """A job that runs, and the two that wait for its slot, in this queue and in another one."""
    make()
    make("other")
    first, second = limited(["x", "x"])
    running = claim_only(first)
    (third,) = limited(["x"], queue="other")
    assert claim(10, queue="other") == []
    return running, second, third


def check_order(listening: ConnectionExecutor, second: int, third: int) -> None:
    assert (FlowTurn.objects.count(), Ready.objects.count()) == (1, 0)
    assert heard(listening) == {"work"}
    job = claim_only(second)
    assert (FlowTurn.objects.count(), Ready.objects.count()) == (0, 0)
    heard(listening)
    ack(job)
    assert heard(listening) == {"other"}
    assert claim(10) == []
    claim_only(third, queue="other")


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("result_ttl_ms", [0, 1000])
def test_the_next_one_comes_with_the_claim_after_the_ack(
    listening: ConnectionExecutor, size: int, result_ttl_ms: int
) -> None:
    first, second, third = waiting_jobs()
    engine.run(engine.configure("work", result_ttl_ms=result_ttl_ms))
    plain = [] if size == 1 else [*put(1), *seqs(claim(1, queue="other"))]
    held = [first, *(claim(1) if plain else [])]
    heard(listening)
    ack(*held)
    check_order(listening, second, third)
    assert differences() == []
    engine.run(engine.ack([third], NODE))
    assert claim(10, queue=["work", "other"]) == []
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
        other.connection.execute("SELECT FROM leasequeue_member FOR UPDATE")
        ack(first)
    ack(claim_only(second))
    claim_only(third, queue=["work", "other"])
    assert differences() == []


def test_an_ack_in_a_transaction_locks_no_key() -> None:
    first, second, _ = waiting_jobs()
    with open_transaction() as other:
        other.run(engine.finish([Ending(first.seq, first.token)], NODE))
        run("SELECT FROM leasequeue_limitkey FOR UPDATE NOWAIT")
        other.connection.commit()
    claim_only(second, queue=["work", "other"])


@contextmanager
def host_begins() -> Iterator[None]:
    run("BEGIN")
    yield
    run("COMMIT")


@contextmanager
def psycopgs(way: str) -> Iterator[None]:
    with getattr(connection.connection, way)():
        yield


@pytest.mark.parametrize(
    "around", [transaction.atomic, host_begins, partial(psycopgs, "transaction"), partial(psycopgs, "pipeline")]
)
def test_one_that_goes_back_in_the_transaction_of_an_ack_keeps_its_slot(
    around: Callable[[], AbstractContextManager[None]],
) -> None:
    make()
    ended, back, _, _ = limited(["x", "y", "x", "y"])
    first, second = claim(10)
    assert (first.seq, second.seq) == (ended, back)
    with around():
        ack(first)
        give_back(second)
    claim(10)
    leased = {seq for row in Claim.objects.all() for seq in row.seqs}
    assert Member.objects.filter(seq__in=leased, taken=True).count() == len(leased) == 2
    assert differences() == []


@pytest.mark.parametrize("fair", [False, True])
def test_one_that_is_tried_again_later_gives_its_slot_away(listening: ConnectionExecutor, fair: bool) -> None:
    make()
    first, second, third = limited(["x", "x", "x"], LimitValues("customer", concurrency=1, fair=fair))
    running = claim_only(first)
    heard(listening)
    give_back(running, 60_000, NO)
    assert heard(listening) == {"work"}
    ack(claim_only(second))
    claim_only(third)
    assert differences() == []


def test_a_busy_claimer_of_limited_jobs_takes_the_turns_of_their_ends() -> None:
    """Its queue is full of others: it does not go by what it remembers of the queue."""
    make()
    first, second = limited(["x"] * 2)
    put(20)
    cursor = ClaimCursor()
    ack(claim_only(first, 1, cursor=cursor))
    claim_only(second, 1, cursor=cursor)


def test_a_turn_is_taken_where_the_next_one_waits(listening: ConnectionExecutor) -> None:
    first, second, third = waiting_jobs()
    engine.run(engine.cancel("work", seqs=[second]))
    assert claim(10) == []
    heard(listening)
    engine.run(engine.delete("work"))
    assert heard(listening) == {"other"}
    claim_only(third, queue="other")
    assert not Member.objects.filter(seq=first.seq).exists()


def test_one_that_is_being_cancelled_is_looked_at_by_a_claimer() -> None:
    first, second, third = waiting_jobs()
    with open_transaction() as other:
        other.run(engine.cancel("work", seqs=[second]))
        ack(first)
        other.connection.commit()
    assert seqs([*claim(10), *claim(10, queue="other")]) == [third]


def test_a_queue_s_slot_wakes_a_claimer_and_who_finds_none_takes_no_lock(listening: ConnectionExecutor) -> None:
    make(concurrency=1)
    put(3)
    job = one()
    heard(listening)
    with open_transaction() as other:
        other.connection.execute(named("SELECT pg_advisory_xact_lock({lock.slots}, %s::int)"), [job.queue_id])
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
    three = engine.Limited("x", LimitValues("three", concurrency=3))
    for name in ["work", "other"]:
        put(count // 2, name, limit=three if by_key else None)
    lock, done = threading.Lock(), []
    running: dict[int, str] = {}
    most = 0

    def work(number: int) -> None:
        nonlocal most
        node = f"node-{number}"
        with helpers.own_connection() as own:
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

    helpers.crowd(6, work)
    assert len(done) == len(set(done)) == count
    assert most <= 3
    assert differences() == []

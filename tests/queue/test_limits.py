"""Limits and unique jobs at the Python door: options of every way of adding a job."""

import asyncio
from typing import Any

import pytest
from django.test import override_settings

from django_leasequeue import BufferedQueue, Limit, NewJob, Queue, engine, tasks
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import FlowTurn, LimitKey, StoredJob
from django_leasequeue.queue import enqueue as producer
from django_leasequeue.queue.flush import CLAIM, END, RELEASE, Call, Claiming, flush
from django_leasequeue.queue.outcomes import ClaimedJob
from django_leasequeue.queue.serializers import JSON
from tests.engine.flow import differences as verified
from tests.queue.conftest import jobqueue

pytestmark = pytest.mark.django_db

CUSTOMER = Limit("customer:{id}", concurrency=1)


def claimed(queue: Queue) -> list[Any]:
    jobs = queue.claim(10)
    for job in jobs:
        queue.ack(job)
    return [job.payload for job in jobs]


def test_the_key_is_made_of_the_payload() -> None:
    queue = Queue("mail")
    for number, customer in enumerate((7, 7, 8)):
        assert queue.enqueue({"id": customer, "n": number}, limit=CUSTOMER).status == "queued"
    queue.enqueue_many([NewJob({"id": 8, "n": 3}, limit=CUSTOMER), {"n": 4}])
    assert [job["n"] for job in claimed(queue)] == [0, 2, 4]
    assert [job["n"] for job in claimed(queue)] == [1, 3]
    assert claimed(queue) == []
    assert tasks.Limit is Limit


def test_a_text_for_any_payload_and_a_function_of_it() -> None:
    queue = Queue("mail", serializer="bytes")
    one = Limit("all {{of}} them", concurrency=1)
    queue.enqueue(b"a", limit=one)
    queue.enqueue(b"b", limit=one)
    by_size = Limit("size", concurrency=1, key=lambda body: f"size {len(body)}" if body else None)
    for body in (b"", b"", b"xx", b"yy"):
        queue.enqueue(body, limit=by_size)
    assert claimed(queue) == [b"a", b"", b"", b"xx"]
    assert claimed(queue) == [b"b", b"yy"]
    assert sorted(LimitKey.objects.values_list("key", flat=True)) == ["all {of} them", "size 2"]


@pytest.mark.parametrize(("payload", "limit", "says"), [
    ({"other": 1}, CUSTOMER, "KeyError"), ([7], CUSTOMER, "names fields of the payload, which is a list"),
    (None, CUSTOMER, "which is a NoneType"), ({"id": "x" * 513}, CUSTOMER, "the key of a limit must be"),
    ({"id": 1}, Limit("{id", concurrency=1), "cannot be made of this payload"),
    ({"id": 1}, Limit("a", concurrency=1, key=lambda payload: payload["id"]), "the key of a limit must be text"),
    ({"id": 1}, "customer", "limit must be a Limit"),
])  # fmt: skip
def test_what_makes_no_key_is_refused_before_anything_is_written(payload: Any, limit: Any, says: str) -> None:
    queue = Queue("mail")
    with pytest.raises(InvalidOption, match=says):
        queue.enqueue(payload, limit=limit)
    with pytest.raises(InvalidOption, match=says):
        queue.enqueue_many([1, NewJob(payload, limit=limit)])
    assert not StoredJob.objects.exists()
    assert not FlowTurn.objects.exists()


def test_what_a_function_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        Queue("mail").enqueue(1, limit=Limit("a", concurrency=1, key=lambda payload: f"{payload / 0}"))
    assert not StoredJob.objects.exists()


@pytest.mark.django_db(transaction=True)
async def test_a_buffer_of_coroutines(native: None) -> None:
    queue = Queue("mail")
    async with BufferedQueue(queue) as buffered:
        refused, *added = await asyncio.gather(
            buffered.aenqueue({"n": 9}, limit=CUSTOMER),
            *(buffered.aenqueue({"id": 8, "n": number}, limit=CUSTOMER) for number in (2, 3)),
            return_exceptions=True,
        )
    assert isinstance(refused, InvalidOption)
    assert len(added) == 2
    assert [job.payload["n"] for job in await queue.aclaim(10)] == [2]


# Unique jobs: how long a key holds, and what becomes of the job that has it


def test_the_jobs_word_wins_over_the_queues_option(clock: Any) -> None:
    queue = jobqueue()  # its keys are taken until the end is forgotten
    first = queue.enqueue(1, key="k", unique_until="end")
    (job,) = queue.claim()
    queue.ack(job, "done")
    second = queue.enqueue(2, key="k", unique_until="end")
    assert (second.status, second.seq != first.seq) == ("queued", True)
    # Also for a call that has no word of its own.
    (job,) = queue.claim()
    queue.ack(job, "done")
    third = queue.enqueue(3, key="k")
    assert third.status == "queued"
    # And that one holds its key as the queue says, for others too.
    (job,) = queue.claim()
    queue.ack(job, "done")
    assert queue.enqueue(4, key="k", unique_until="end").result == "done"


@override_settings(LEASEQUEUE={"MAX_ENQUEUE": 7})
def test_many_at_once() -> None:
    queue = Queue("mail")
    queue.enqueue("there", key="k3")
    jobs = [NewJob(number, key=f"k{number % 10}", unique_until="end") for number in range(20)]
    receipts = queue.enqueue_many([*jobs, "plain"])
    assert [receipt.status for receipt in receipts] == [
        *["duplicate" if number == 3 else "queued" for number in range(10)], *["duplicate"] * 10, "queued",
    ]  # fmt: skip
    assert [receipt.seq for receipt in receipts[10:20]] == [receipt.seq for receipt in receipts[:10]]


@pytest.mark.parametrize("hands", [0, producer.TRIES - 2, producer.TRIES - 1, producer.TRIES])
def test_a_key_that_goes_from_hand_to_hand(hands: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look finds the holder gone, and the next try somebody else's: who is told that a job is queued has one."""
    queue = Queue("work")
    queue.enqueue("theirs", key="k")
    look, left = producer.status, hands

    def late_look(*args: Any, **options: Any) -> Any:
        nonlocal left
        assert engine.run(engine.cancel("work", seqs=[StoredJob.objects.get(key="k").seq]))
        if left:
            left -= 1
            engine.run(engine.enqueue("work", [NewJob(data="theirs", key="k")]))
        return look(*args, **options)

    monkeypatch.setattr(producer, "status", late_look)
    receipt = queue.enqueue("mine", key="k")
    queued = hands < producer.TRIES - 1
    assert receipt.status == ("queued" if queued else "duplicate")
    assert [job.seq for job in StoredJob.objects.all() if job.data == "mine"] == ([receipt.seq] if queued else [])


# A buffer folds calls into transactions of several statements


def _folded(queue: Queue, *calls: Call[Any]) -> list[Any]:
    engine.run(flush(queue, JSON, calls))
    return [call.answer for call in calls]


def _ack(job: ClaimedJob) -> Call[Any]:
    return Call(END, engine.Ending(job.seq, job.token), job)


def _nack(job: ClaimedJob, delay_ms: int = 0) -> Call[Any]:
    return Call(RELEASE, engine.Release(job.seq, job.token, delay_ms), job)


def _next(queue: Queue) -> list[int]:
    return [job.payload["n"] for job in queue.claim(10, lease_ms=60_000)]


@pytest.fixture
def customers() -> Queue:
    """Two customers with two jobs each, of which one may run at a time."""
    queue = Queue("mail")
    queue.enqueue_many([NewJob({"id": n % 2, "n": n}, limit=CUSTOMER) for n in range(4)])
    return queue


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("delay_ms", [0, 5_000])
def test_a_job_that_goes_back_in_the_transaction_of_an_ack_stays_under_its_limit(
    customers: Queue, delay_ms: int, clock: Any
) -> None:
    first, second = customers.claim(10)
    _folded(customers, _ack(first), _nack(second, delay_ms))
    assert not verified()
    # Who is tried again later gives its slot away.
    assert _next(customers) == ([1, 2] if delay_ms == 0 else [2, 3])
    clock.advance(seconds=10)
    assert _next(customers) == []
    assert not verified()


@pytest.mark.django_db(transaction=True)
def test_a_lease_that_expires_in_the_transaction_of_an_ack_keeps_its_job_under_its_limit(
    customers: Queue, clock: Any
) -> None:
    (first,) = customers.claim(1)
    (second,) = customers.claim(1, lease_ms=1_000)
    clock.advance(seconds=2)
    _, jobs = _folded(customers, _ack(first), Call(CLAIM, Claiming(10, None, None)))
    assert second.seq in [job.seq for job in jobs]
    running = [job.payload["id"] for job in jobs + customers.claim(10)]
    assert sorted(running) == [0, 1]
    assert not verified()

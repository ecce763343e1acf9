"""Unique jobs at the Python door: how long a key holds, and what becomes of the job that has it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from django_leasequeue import BufferedQueue, NewJob, Queue, engine
from django_leasequeue.models import LiveJob, StoredJob
from django_leasequeue.queue import enqueue as producer

from .support import jobqueue, states

pytestmark = pytest.mark.django_db


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


def test_until_it_starts_and_for_a_time(clock: Any) -> None:
    queue = Queue("mail")
    first = queue.enqueue(1, key="a", unique_until="start")
    queue.claim()
    second = queue.enqueue(2, key="a", unique_until="start")
    assert second.status == "queued"
    status = queue.get_status("a")
    assert status.row.seq == second.seq
    for_a_minute = queue.enqueue(3, key="b", unique_for_ms=60_000)
    for job in queue.claim(5):
        queue.ack(job, job.payload)
    clock.advance(seconds=59)
    assert queue.enqueue(4, key="b", unique_for_ms=60_000) == for_a_minute._replace(
        status="completed", state="completed", result=3
    )
    assert queue.enqueue(4, key="b").status == "completed"
    clock.advance(seconds=1)
    assert queue.enqueue(4, key="b", unique_for_ms=60_000).status == "queued"
    assert first.seq < second.seq


def test_a_job_without_these_options_is_rescheduled_too(clock: Any) -> None:
    queue = Queue("mail")
    plain = queue.enqueue(1, key="k")
    moved = queue.enqueue(2, key="k", on_conflict="reschedule", delay_ms=10_000)
    assert (moved.seq, LiveJob.objects.get().available_at) == (plain.seq, clock.now.replace(second=10))


@override_settings(LEASEQUEUE={"MAX_ENQUEUE": 7})
def test_many_at_once() -> None:
    queue = Queue("mail")
    queue.enqueue("there", key="k3")
    jobs = [NewJob(number, key=f"k{number % 10}", unique_until="end") for number in range(20)]
    receipts = queue.enqueue_many([*jobs, "plain"])
    assert [receipt.status for receipt in receipts] == [
        *["duplicate" if number == 3 else "queued" for number in range(10)],
        *["duplicate"] * 10,
        "queued",
    ]
    assert [receipt.seq for receipt in receipts[10:20]] == [receipt.seq for receipt in receipts[:10]]


@pytest.mark.django_db(transaction=True)
def test_fifty_callers_of_a_buffered_queue_make_one_job() -> None:
    Queue("mail").create()
    with BufferedQueue("mail") as queue, ThreadPoolExecutor(50) as pool:
        start = threading.Barrier(50, timeout=60)

        def call(number: int) -> Any:
            start.wait()
            return queue.enqueue(number, key="k", unique_until="end")

        receipts = list(pool.map(call, range(50)))
    assert sorted(receipt.status for receipt in receipts) == ["duplicate"] * 49 + ["queued"]
    assert len({receipt.seq for receipt in receipts}) == 1
    assert LiveJob.objects.count() == 1
    connections.close_all()


def test_a_redriven_job_has_its_key_again_if_nobody_took_it() -> None:
    queue = Queue("mail", dead_letter="self", max_deliveries=1, exhaust_at="release")
    first = queue.enqueue(1, key="k", unique_until="end")
    (job,) = queue.claim()
    queue.nack(job)
    assert states(queue, "k") == "failed"
    engine.run(engine.redrive("mail", [first.seq]))
    assert queue.enqueue(2, key="k", unique_until="end").seq == first.seq


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

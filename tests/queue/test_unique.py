"""Unique jobs at the Python door: how long a key holds, and what becomes of the job that has it."""

from typing import Any

import pytest
from django.test import override_settings

from django_leasequeue import NewJob, Queue, engine
from django_leasequeue.models import StoredJob
from django_leasequeue.queue import enqueue as producer

from .support import jobqueue

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

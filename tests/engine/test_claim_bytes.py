"""A claim answers at most 16 MiB of payloads, whatever its jobs have been through."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Failure, LeasedJob, NewJob, Release
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.dead.action import edit_and_retry
from django_leasequeue.engine.leases.settle import MAX_CLAIM_BYTES
from django_leasequeue.enums import JobFlag
from django_leasequeue.models import LiveJob, Ready
from django_leasequeue.sql import statement
from tests.engine.helpers import NODE, claim, enqueue, make, run, seqs

pytestmark = pytest.mark.django_db

#: More than an answer holds, each so alike in itself that it stands in some 1,200 bytes.
COUNT, SIZE = 180, 100_000
TEXT = "x" * SIZE
KINDS: dict[str, NewJob] = {
    "data": NewJob(TEXT), "metadata": NewJob(1, meta={"headers": {"a": TEXT}}), "body": NewJob(body=TEXT.encode()),
}  # fmt: skip


def size_of(jobs: list[LeasedJob]) -> int:
    return sum(len(job.data_json or "") + len(job.meta_json or "") + len(job.body or b"") for job in jobs)


def claim_all(queue: str | list[str] = "work") -> list[LeasedJob]:
    """Claim until nothing is left; no answer is too large, and none smaller than it need be."""
    hands = [claim(1_000, queue)]
    while more := claim(1_000, queue):
        hands.append(more)
    assert all(MAX_CLAIM_BYTES - 2 * SIZE < size_of(jobs) <= MAX_CLAIM_BYTES for jobs in hands[:-1])
    assert size_of(hands[-1]) <= MAX_CLAIM_BYTES
    return [job for jobs in hands for job in jobs]


def nack(delay_ms: int, clock: Clock, jobs: list[LeasedJob]) -> None:
    engine.run(engine.release([Release(job.seq, job.token, delay_ms) for job in jobs], NODE))
    clock.advance(milliseconds=delay_ms)


def expire(clock: Clock, jobs: list[LeasedJob]) -> None:
    clock.advance(minutes=10)
    assert len(engine.run(engine.sweep([jobs[0].queue_id]))) == len(jobs)


def redrive(to: str | None, dead_letter: str, clock: Clock, jobs: list[LeasedJob]) -> None:
    home = {"self": "work"}.get(dead_letter, dead_letter)
    engine.run(engine.configure("work", max_deliveries=1, exhaust_at="release", dead_letter=dead_letter))
    engine.run(engine.release([Release(job.seq, job.token, failure=Failure("E")) for job in jobs], NODE))
    dead = sorted(LiveJob.objects.filter(queue__name=home).values_list("seq", flat=True))
    assert len(dead) == len(jobs)
    engine.run(engine.configure("work", max_deliveries=0, exhaust_at="claim"))
    if to is not None:
        engine.run(engine.redrive(home, dead, to=to))


WAYS: dict[str, Callable[[Clock, list[LeasedJob]], None]] = {
    "nack": partial(nack, 0), "nack with a delay": partial(nack, 1_000), "expiry": expire,
    "redrive": partial(redrive, "work", "self"), "move": partial(redrive, None, "letters"),
    "move and redrive": partial(redrive, "work", "letters"),
}  # fmt: skip


@pytest.mark.slow  # megabytes
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "requeue"), [*((kind, "original") for kind in KINDS), ("data", "back")])
def test_jobs_that_came_back(kind: str, requeue: str, way: str, clock: Clock) -> None:
    make(requeue=requeue)
    make("letters")
    enqueue(*[KINDS[kind]] * COUNT)
    WAYS[way](clock, claim_all())
    assert len(claim_all("letters" if way == "move" else "work")) == COUNT
    assert all(row.flags & JobFlag.LARGE for row in Ready.objects.all())


@pytest.mark.slow  # megabytes
def test_an_answer_of_several_queues_and_rounds(clock: Clock) -> None:
    for queue in ("work", "more", "small"):
        make(queue)
    enqueue(*[KINDS["data"]] * 100)
    enqueue(*[KINDS["data"]] * 100, queue="more")
    enqueue(*[NewJob("x" * 16_000)] * 900, queue="small")
    everything = claim_all(["small", "work", "more"])
    assert len(everything) == 1_100
    nack(0, clock, everything[:1_000])
    assert len(claim_all(["work", "small", "more"])) == 1_000


@pytest.mark.parametrize("kind", KINDS)
def test_each_way_of_adding_a_job_counts_the_same_bytes(kind: str) -> None:
    make()

    def job(size: int, **more: Any) -> NewJob:
        text = "ä" * (size // 2)
        given = {"data": {"data": text}, "metadata": {"meta": {"a": text}}, "body": {"body": text.encode()}}[kind]
        return NewJob(**given, **more)

    over = {"data": 2, "metadata": len('{"a":""}'), "body": 0}[kind]
    small, large = job(16_384 - over), job(16_386 - over)
    for jobs in ([small], [large], [small] * 2, [large] * 2, [small] * 150, [large] * 150):
        enqueue(*jobs)
    enqueue(*[job._replace(delay_ms=1) for job in (small, large)])
    flags = list(Ready.objects.order_by("seq").values_list("flags", flat=True))
    assert flags == [0, 64, 0, 0, 64, 64, *[0] * 150, *[64] * 150]


def test_one_job_always_fits_and_an_edit_counts(settings: Any) -> None:
    settings.LEASEQUEUE = {"MAX_PAYLOAD_BYTES": 2 * MAX_CLAIM_BYTES}
    make(max_deliveries=1, exhaust_at="release", dead_letter="self")
    enqueue(NewJob("small"), NewJob("x" * (MAX_CLAIM_BYTES + 1)), NewJob("last"))
    hands = [claim(10), claim(10), claim(10)]
    assert [[len(job.data) for job in jobs] for jobs in hands] == [[5], [MAX_CLAIM_BYTES + 1], [4]]
    engine.run(engine.release([Release(hands[0][0].seq, failure=Failure("E"))], NODE))
    letter = LiveJob.objects.get(seq=hands[0][0].seq)
    edited = engine.run(edit_and_retry("work", letter.seq, data=TEXT, dead_at=letter.dead_at))
    assert Ready.objects.get(seq=edited.seq).flags & JobFlag.LARGE
    assert seqs(claim(10)) == [edited.seq]


def test_what_does_not_fit_is_not_read() -> None:
    """Of 6 MB that wait, for an answer of 1 MiB: pages of 8 KiB that the statement touches, those on its disk too."""
    make("work")
    enqueue(*(NewJob(os.urandom(75_000).hex(), os.urandom(50_000)) for _ in range(30)))
    call = {
        "queue": LiveJob.objects.all()[0].queue_id, "ranks": "{0}", "lows": "{0}", "tags": None, "admitted": None,
        "node": NODE, "size": 1_000, "lease_ms": None, "grace_ms": 0, "connection": None, "suspect_alone": False,
        "bytes": 2**20, "first": True, "slots": False, "now": None, "autocommit": False, "alone": False,
    }  # fmt: skip
    (((found,),),) = run("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement("claim_mixed"), call)
    plan = found["Plan"]
    assert plan["Actual Rows"] == 5
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 700
    assert plan["Temp Written Blocks"] < 2 * 2**20 / 8_192

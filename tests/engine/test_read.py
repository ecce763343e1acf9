"""Reading without changing: pages in order, cursors, bounds, projects."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Release
from django_leasequeue.engine.codec import encode_cursor
from django_leasequeue.engine.jobs import read
from django_leasequeue.engine.jobs.results import status
from django_leasequeue.exceptions import BatchTooLarge, InvalidOption, QueueNotFound
from django_leasequeue.models import Claim, FloorKind, QueueFloor, Ready
from tests.support.rows import rows

from .helpers import NODE, OTHER, claim, enqueue, make, one, put, read_job

pytestmark = pytest.mark.usefixtures("queue")


def pages(state: str = "ready", queue: str = "work", **options: Any) -> Iterator[list[int]]:
    cursor = None
    while True:
        page = engine.run(engine.list_jobs(queue, state, after=cursor, **options))
        yield [job.seq for job in page.jobs]
        if (cursor := page.next) is None:
            return


def listed(state: str = "ready", queue: str = "work", **options: Any) -> list[int]:
    return [seq for page in pages(state, queue, **options) for seq in page]


def test_a_job_is_read_as_it_is(clock) -> None:
    (made,) = enqueue(
        NewJob(data={"a": 1}, meta={"m": 2}, body=b"\x00b", key="k", name="app.task", tag="t", priority=3), origin="me"
    )
    job = read_job(made.seq)
    assert (job.state, job.queue, job.key, job.name, job.tag, job.rank) == ("ready", "work", "k", "app.task", "t", -3)
    assert (job.data, job.meta, job.body, job.progress, job.errors) == ({"a": 1}, {"m": 2}, b"\x00b", None, [])
    assert (job.origin, job.created_at, job.node) == ("me", clock.now, None)
    leased = one()
    job = read_job(made.seq)
    assert (job.state, job.node, job.claim, job.deadline) == ("leased", NODE, leased.token, leased.deadline)


def test_ready_jobs_are_listed_in_claim_order(clock) -> None:
    put(2, ttl_ms=1_000)
    clock.advance(seconds=2)
    low = put(3, priority=1)
    high = put(3, priority=9)
    claim(2)
    engine.run(engine.nack(high[:2], NODE))
    assert listed() == high + low
    assert list(pages(size=2)) == [high[:2], [high[2], low[0]], low[1:], []]
    assert [job.seq for job in engine.run(engine.list_jobs("work", size=4)).jobs] == [*high, low[0]]
    assert [job.seq for job in engine.run(engine.state("work")).ready] == high + low
    assert [job.seq for job in claim(6)] == high + low


def test_delayed_jobs_are_listed_by_time_and_records_by_number(clock) -> None:
    late = put(2, delay_ms=60_000)
    soon = put(1, delay_ms=5_000)
    assert list(pages("delayed", size=1)) == [soon, late[:1], late[1:], []]
    make("log", type="log")
    seqs = put(5, queue="log")
    assert list(pages("record", "log", size=2)) == [seqs[:2], seqs[2:4], seqs[4:]]


def test_a_page_goes_on_where_the_last_one_ended_although_its_jobs_are_gone() -> None:
    seqs = put(6)
    first = engine.run(engine.list_jobs("work", size=2))
    claim(3)
    assert [job.seq for job in engine.run(engine.list_jobs("work", after=first.next)).jobs] == seqs[3:]


def test_leased_jobs_are_listed_by_the_end_of_their_claims(clock) -> None:
    seqs = put(6)
    first = claim(2, lease_ms=60_000)
    second = claim(3, lease_ms=10_000, node=OTHER)
    engine.run(engine.ack([second[1].seq], OTHER))
    assert listed("leased") == [seqs[2], seqs[4], *[job.seq for job in first]]
    assert list(pages("leased", size=1)) == [[seqs[2]], [seqs[4]], [seqs[0]], [seqs[1]], []]
    assert [job.node for job in engine.run(engine.list_jobs("work", "leased")).jobs] == [OTHER, OTHER, NODE, NODE]


@pytest.mark.parametrize("size", [1, 7, 10, 100])
def test_pages_of_leased_jobs_end_within_claims(clock, size: int) -> None:
    seqs = put(24)
    for number, node in ((1, NODE), (10, OTHER), (1, NODE), (12, NODE)):
        claim(number, node=node)
    # Two parts of one claim, as after an extension of some of its jobs that gave them the same end again.
    whole = Claim.objects.get(seqs__contains=[seqs[-1]])
    rows(Claim).filter(token=whole.token).update(seqs=whole.seqs[::2])
    values = {field.attname: getattr(whole, field.attname) for field in Claim._meta.concrete_fields}
    rows(Claim).create(**{**values, "part": 1, "seqs": whole.seqs[1::2]})
    found = list(pages("leased", size=size))
    assert sorted(seq for page in found for seq in page) == seqs
    assert {len(page) for page in found[:-2]} <= {size}


def test_a_job_claimed_twice_is_listed_once(clock) -> None:
    (seq,) = put(1)
    one(lease_ms=60_000)
    engine.run(engine.nack([seq], NODE))
    one(lease_ms=90_000)
    assert listed("leased") == [seq]


def test_dead_jobs_are_listed_by_fingerprint_and_time(clock) -> None:
    make("mortal", max_deliveries=1, exhaust_at="release", dead_letter="self")
    seqs = put(5, queue="mortal")
    for group in ("b", "a", "b", "a", "a"):
        job = one("mortal")
        engine.run(engine.release([Release(job.seq, failure=Failure("E", fingerprint=group))], NODE))
        clock.advance(seconds=1)
    order = [seqs[1], seqs[3], seqs[4], seqs[0], seqs[2]]
    assert listed("dead", "mortal") == order
    assert list(pages("dead", "mortal", size=2)) == [order[:2], order[2:4], order[4:]]
    assert listed("dead", "mortal", fingerprint="b") == [seqs[0], seqs[2]]
    assert listed("ready", "mortal") == []


def test_jobs_that_moved_between_the_two_statements_are_left_out(monkeypatch) -> None:
    seqs = put(3)
    steps = engine.list_jobs("work").steps()
    name, params = next(steps)
    rows = engine.DjangoExecutor("default").fetch(name, params)
    one()
    name, params = steps.send(rows)
    with pytest.raises(StopIteration) as stop:
        steps.send(engine.DjangoExecutor("default").fetch(name, params))
    assert [job.seq for job in stop.value.value.jobs] == seqs[1:]


def test_a_page_ends_where_its_payloads_get_too_large(monkeypatch) -> None:
    monkeypatch.setattr(read, "MAX_PAGE_BYTES", 1_000)
    seqs = [put(1, body=b"x" * size)[0] for size in (5_000, 10, 600, 600, 300, 2_000)]
    assert list(pages()) == [seqs[:1], seqs[1:3], seqs[3:5], seqs[5:]]
    assert list(pages(payload=False)) == [seqs]
    assert engine.run(engine.list_jobs("work", payload=False)).jobs[0].body is None
    assert read_job(seqs[0]).body == b"x" * 5_000


def test_pages_are_bounded(settings) -> None:
    settings.LEASEQUEUE = {"MAX_PAGE": 2}
    seqs = put(3)
    assert list(pages(size=1_000)) == [seqs[:2], seqs[2:]]
    with pytest.raises(InvalidOption, match="size must be an integer from 1"):
        engine.run(engine.list_jobs("work", size=0))


CURSORS = [("delayed", 1, 2), ("ready", 1), ("ready", "1", 2), ("ready", True, 2), ("ready", 2**63, 2)]


@pytest.mark.parametrize("cursor", ["", "?", "bm90IGpzb24", *(encode_cursor(*c) for c in CURSORS), "e30", "MQ", "ü", 5])
def test_a_cursor_that_no_page_gave_is_refused(cursor) -> None:
    put(1)
    with pytest.raises(InvalidOption, match="cursor"):
        engine.run(engine.list_jobs("work", after=cursor))


def test_what_is_not_there_is_said() -> None:
    for operation in (engine.list_jobs("missing"), engine.state("missing")):
        with pytest.raises(QueueNotFound):
            engine.run(operation)
    with pytest.raises(InvalidOption, match="a state is one of"):
        engine.run(engine.list_jobs("work", "sleeping"))
    assert read_job(10**9) is None
    with pytest.raises(InvalidOption, match="seq"):
        read_job(-1)


def test_keys_are_found_wherever_their_jobs_are(clock) -> None:
    make("kept", result_ttl_ms=60_000)
    put(1, key="a")
    (leased,) = put(1, queue="kept", key="b")
    (done,) = put(1, queue="kept", key="c")
    jobs = claim(2, queue="kept")
    engine.run(engine.finish([Ending(jobs[1].seq, result={"answer": 42})], NODE))
    found = engine.run(status("kept", keys=["a", "b", "c", "unknown", "c"], inline=1_000))
    assert [(item.key, item.seq, item.state) for item in found] == [
        ("b", leased, "processing"),
        ("c", done, "completed"),
    ]
    result = found[1]
    assert (result.result_json, result.node, result.deliveries, result.finished_at) == (
        '{"answer":42}', NODE, 1, clock.now,
    )  # fmt: skip
    make("kept", project="b")
    for given in ({"keys": ["b"]}, {"seqs": [leased]}, {"seqs": [done]}):
        assert engine.run(status("kept", **given, project="b")) == [], "another project sees none of ours"
    assert (read_job(leased, project="b"), listed("leased", "kept", project="b")) == (None, [])
    clock.advance(seconds=61)
    assert engine.run(status("kept", seqs=[done])) == []


@pytest.mark.parametrize("operation", [
    lambda: engine.list_jobs("a\x00b"), lambda: engine.list_jobs(None), lambda: engine.list_jobs("work", project=5),
    lambda: engine.list_jobs("work", "dead", fingerprint=5), lambda: engine.list_jobs("work", size="many"),
    lambda: read.get_jobs(["1"]), lambda: read.get_jobs([1], project="\x00"), lambda: status("work", keys="keys"),
    lambda: status("work", keys=[b"key"]), lambda: status("work", keys=["a\x00"]), lambda: status("", keys=["a"]),
    lambda: status("work", keys=["\ud800"]), lambda: status("work", seqs="12"),
    lambda: status("work", keys=[str(number) for number in range(1_001)]), lambda: engine.state("work", size=None),
    lambda: engine.counts(""), lambda: engine.counts_of("work"), lambda: engine.counts_of([None]),
    lambda: engine.totals(project=5), lambda: engine.totals(size=True),
])  # fmt: skip
def test_bad_input_is_refused_before_the_database_sees_it(operation) -> None:
    with pytest.raises((InvalidOption, BatchTooLarge)):
        engine.run(operation())


def test_a_snapshot_of_a_queue(clock) -> None:
    seqs = put(4)
    put(1, delay_ms=10_000)
    first = clock.now
    clock.advance(seconds=5)
    (job,) = claim(1)
    snapshot = engine.run(engine.state("work"))
    assert [item.seq for item in snapshot.ready] == seqs[1:]
    assert [(item.seq, item.node, item.deadline) for item in snapshot.in_progress] == [(job.seq, NODE, job.deadline)]
    assert (snapshot.at, snapshot.oldest_at) == (clock.now, first)
    assert engine.run(engine.state("work", size=2)).ready == snapshot.ready[:2]


def test_a_snapshot_has_a_new_version_when_something_changed(transactional_db) -> None:
    put(1)
    before = engine.run(engine.state("work"))
    assert engine.run(engine.state("work")).version == before.version
    one()
    assert engine.run(engine.state("work")).version > before.version


def test_listings_start_at_their_floors(clock) -> None:
    seqs = put(3)
    put(1, delay_ms=1_000)
    late = put(1, delay_ms=60_000)
    queue = Ready.objects.first().queue_id
    for kind, value in ((FloorKind.READY, seqs[1]), (FloorKind.DELAYED, micros(clock.now) + 30_000_000)):
        rows(QueueFloor).create(queue_id=queue, kind=kind, value=value, made_at=clock.now)
    assert listed() == [job.seq for job in engine.run(engine.state("work")).ready] == seqs[1:]
    assert listed("delayed") == late
    rows(QueueFloor).create(queue_id=queue, kind=FloorKind.READY, value=seqs[2], made_at=clock.now)
    assert listed() == seqs[2:], "the highest floor counts"
    engine.run(engine.nack([claim(1)[0].seq], NODE))
    rows(QueueFloor).create(queue_id=queue, kind=FloorKind.READY, value=seqs[2] + 1, made_at=clock.now)
    assert listed() == seqs[2:], "the floor does not bound the lane of what was given back"


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)

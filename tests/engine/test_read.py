"""Reading without changing: pages in order, cursors, bounds, projects, held messages; counts, samples, estimates."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Release
from django_leasequeue.engine.codec import decode_cursor, encode_cursor
from django_leasequeue.engine.jobs import read
from django_leasequeue.engine.jobs.results import status
from django_leasequeue.engine.queues import stats
from django_leasequeue.engine.topics import messages
from django_leasequeue.exceptions import InvalidOption, QueueNotFound
from django_leasequeue.models import Claim, FloorKind, Queue, QueueFloor, QueueStat
from tests.engine.helpers import NODE, OTHER, claim, enqueue, make, one, put, read_job, run, seqs
from tests.support.rows import rows
from tests.support.sampling import sample

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
    fields = {"data": {"a": 1}, "meta": {"m": 2}, "body": b"\x00b", "key": "k", "name": "app.task", "tag": "t"}
    (made,) = enqueue(NewJob(**fields, priority=3), origin="me")
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
    engine.run(engine.nack([seqs[2]], OTHER))
    assert one(lease_ms=90_000).seq == seqs[2]
    assert listed("leased") == [seqs[4], *[job.seq for job in first], seqs[2]], "a job claimed twice is listed once"


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
    steps = iter(engine.list_jobs("work"))
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


CURSORS = [("delayed", 1, 2), ("ready", 1), ("ready", "1", 2), ("ready", True, 2), ("ready", 2**63, 2)]


@pytest.mark.parametrize("cursor", ["?", "bm90IGpzb24", *(encode_cursor(*c) for c in CURSORS), "e30", "MQ", "ü", 5])
def test_a_cursor_that_no_page_gave_is_refused(cursor) -> None:
    put(1)
    with pytest.raises(InvalidOption, match="cursor"):
        engine.run(engine.list_jobs("work", after=cursor))


@pytest.mark.parametrize("text", ["a\x00", "\ud800"])
def test_a_cursor_whose_text_postgresql_cannot_store_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="cursor"):
        decode_cursor(urlsafe_b64encode(json.dumps([text]).encode()).decode(), (str,))


def test_keys_are_found_wherever_their_jobs_are(clock) -> None:
    make("kept", result_ttl_ms=60_000)
    put(1, key="a")
    (leased,) = put(1, queue="kept", key="b")
    (done,) = put(1, queue="kept", key="c")
    jobs = claim(2, queue="kept")
    engine.run(engine.finish([Ending(jobs[1].seq, result={"answer": 42})], NODE))
    found = engine.run(status("kept", keys=["a", "b", "c", "unknown", "c"], inline=1_000))
    told = [(item.key, item.seq, item.state) for item in found]
    assert told == [("b", leased, "processing"), ("c", done, "completed")]
    result = found[1]
    assert (result.result_json, result.node) == ('{"answer":42}', NODE)
    assert (result.deliveries, result.finished_at) == (1, clock.now)
    make("kept", project="b")
    for given in ({"keys": ["b"]}, {"seqs": [leased]}, {"seqs": [done]}):
        assert engine.run(status("kept", **given, project="b")) == [], "another project sees none of ours"
    assert (read_job(leased, project="b"), listed("leased", "kept", project="b")) == (None, [])
    clock.advance(seconds=61)
    assert engine.run(status("kept", seqs=[done])) == []


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


def test_listings_and_counts_start_at_their_floors(clock, queue: int) -> None:
    held, *seqs = put(4)
    put(1, delay_ms=1_000)
    late = put(1, delay_ms=60_000)
    assert one(lease_ms=1_000).seq == held
    assert (count().ready, count().delayed, count().in_flight) == (3, 2, 1)

    def floor(kind: FloorKind, value: int) -> None:
        rows(QueueFloor).create(queue_id=queue, kind=kind, value=value, made_at=clock.now)

    above = round(clock.now.timestamp() * 1_000_000) + 30_000_000
    for kind, value in ((FloorKind.READY, seqs[1]), (FloorKind.DELAYED, above), (FloorKind.CLAIM, above)):
        floor(kind, value)
    assert (count().ready, count().delayed, count().in_flight) == (2, 1, 0)
    assert listed() == [job.seq for job in engine.run(engine.state("work")).ready] == seqs[1:]
    assert listed("delayed") == late
    floor(FloorKind.READY, seqs[2])
    assert listed() == seqs[2:], "the highest floor counts"
    engine.run(engine.nack([one().seq], NODE))
    floor(FloorKind.READY, seqs[2] + 1)
    assert listed() == seqs[2:], "the floor does not bound the lane of what was given back"


def messages_of(queue: int, **options: object) -> list[tuple[int, bool]]:
    page = engine.run(messages.list_messages(queue, **options))
    return [(message.seq, message.claim is not None) for message in page]


@pytest.mark.parametrize("look", [1, 2, 1_000])
def test_held_messages_stand_where_they_were(queue, monkeypatch: pytest.MonkeyPatch, look: int) -> None:
    monkeypatch.setattr(messages, "LOOK", look)
    made = put(12)
    first, second = claim(4), claim(4)
    engine.run(engine.ack(seqs(first[1:3]), NODE))
    engine.run(engine.nack([second[0].seq], NODE))
    left = [seq for seq in made if seq not in seqs(first[1:3])]
    taken = {first[0].seq, first[3].seq, *seqs(second[1:])}
    assert messages_of(queue, size=50, leased=True) == [(seq, seq in taken) for seq in left]
    assert messages_of(queue, size=50) == [(seq, False) for seq in left if seq not in taken]
    pages, after = [], 0
    while page := engine.run(messages.list_messages(queue, size=3, after=after, leased=True)):
        pages += [message.seq for message in page]
        after = page[-1].position
    assert pages == left


def test_a_claim_that_was_given_back_is_gone_whatever_was_done_of_it(queue) -> None:
    put(4)
    whole, part = claim(2), claim(2)
    engine.run(engine.ack([part[0].seq], NODE))
    assert engine.run(messages.release_claim(queue, whole[0].token)) == 2
    assert engine.run(messages.release_claim(queue, part[1].token)) == 1
    assert not Claim.objects.exists()


def count(queue: str = "work", project: str = "") -> engine.Counts:
    return engine.run(engine.counts(queue, project=project))


def test_jobs_are_counted_where_they_are(clock) -> None:
    counts = count()
    assert counts[5:11] == (0, 0, 0, 0, 0, 0)
    assert (counts.oldest_at, counts.exact, counts.sampled_at, counts.type) == (None, True, None, "queue")
    put(2, priority=3)
    put(4)
    put(2, delay_ms=60_000)
    jobs = claim(5)
    engine.run(engine.ack([jobs[0].seq], NODE))
    engine.run(engine.nack([jobs[1].seq], NODE))
    counts = count()
    assert (counts.ready, counts.delayed, counts.in_flight, counts.dead) == (2, 2, 3, 0)
    assert (counts.oldest_at, counts.exact) == (clock.now, True)
    make("log", type="log")
    put(3, queue="log")
    counts = count("log")
    assert (counts.type, counts.records, counts.ready) == ("log", 3, 0)


def test_what_is_over_or_due_is_ready_before_any_sweep(clock, queue: int) -> None:
    put(4)
    claim(2)
    put(3, ttl_ms=5_000)
    put(1, delay_ms=10_000)
    put(1, delay_ms=90_000)
    clock.advance(seconds=30)
    assert (count().ready, count().in_flight, count().delayed) == (3, 2, 1), "a lease is over after its deadline only"
    clock.advance(seconds=1)
    for _ in range(2):
        assert (count().ready, count().in_flight, count().delayed) == (5, 0, 1), "and sweeping changes nothing"
        engine.run(engine.sweep([queue]))
        engine.run(engine.promote([queue]))


def test_several_queues_in_one_statement() -> None:
    make("mortal", max_deliveries=1, exhaust_at="release", dead_letter="self")
    make("work", project="a")
    put(2, queue="mortal")
    engine.run(engine.nack([job.seq for job in claim(2, queue="mortal")], NODE))
    put(1, queue="mortal")
    put(2)
    put(5, project="a")
    assert (count(project="a").ready, count().ready) == (5, 2)
    with pytest.raises(QueueNotFound, match="project 'b'"):
        count(project="b")
    found = engine.run(engine.counts_of(["mortal", "work", "missing", "work"]))
    assert {name: (counts.ready, counts.dead, counts.dead_lettered) for name, counts in found.items()} == {
        "mortal": (1, 2, 2), "work": (2, 0, 0),
    }  # fmt: skip
    assert count("mortal")[5:11] == found["mortal"][5:11]


def test_of_several_queues_those_with_many_jobs_share_what_is_counted(monkeypatch) -> None:
    monkeypatch.setattr(stats, "FEW", 2)
    ids = [make(name) for name in ("small", "large", "larger")]
    for name, jobs in (("small", 2), ("large", 8), ("larger", 30)):
        put(jobs, queue=name)
    for budget, seen in ((20, [(2, 2, True), (8, 10, True), (11, 10, False)]), (1, [(2, 2, True), (3, 2, False)])):
        found = engine.run(stats.counts_by_id(ids, budget=budget))
        assert [(counts.ready, counts.cap, counts.exact) for counts in found.values()][: len(seen)] == seen
    sample()
    assert [counts.ready for counts in engine.run(stats.counts_by_id(ids, budget=1)).values()] == [2, 8, 30]


def test_behind_the_cap_a_count_says_so_and_uses_the_newest_sample(settings, clock) -> None:
    settings.LEASEQUEUE = {"COUNT_CAP": 5}
    put(20)
    put(12, delay_ms=60_000)
    counts = count()
    assert (counts.ready, counts.delayed, counts.exact) == (6, 6, False), "no sample yet: at least the cap"
    assert sample() == 1
    counts = count()
    assert (counts.ready, counts.delayed, counts.exact, counts.sampled_at) == (20, 12, False, clock.now)
    claim(18)
    counts = count()
    assert (counts.ready, counts.exact) == (2, False), "what fits the cap is counted, whatever a sample says"
    assert counts.in_flight >= 6
    sample()
    clock.advance(seconds=1)
    sample()
    assert (count().in_flight, count().sampled_at) == (18, clock.now), "the newest sample"


def test_claims_behind_the_cap_are_estimated_and_all_jobs_of_a_claim_count(settings, clock) -> None:
    settings.LEASEQUEUE = {"COUNT_CAP": 5}
    put(40)
    jobs = claim(30)
    assert count().in_flight == 30
    engine.run(engine.ack([job.seq for job in jobs[:20]], NODE))
    for _ in range(8):
        clock.advance(seconds=1)
        claim(1)
    assert (count().in_flight, count().exact) == (6, False), "of the newest claims, as many as the cap allows"
    sample()
    assert (count().in_flight, count().ready, count().exact) == (18, 2, False)


def test_dead_letters_kept_in_a_queue_do_not_count_as_dead(settings) -> None:
    settings.LEASEQUEUE = {"COUNT_CAP": 3}
    make("letters")
    make("mortal", max_deliveries=1, exhaust_at="release", dead_letter="letters")
    put(5, queue="mortal")
    engine.run(engine.nack([job.seq for job in claim(5, queue="mortal")], NODE))
    counts = count("letters")
    assert (counts.dead, counts.ready) == (0, 4)


def test_a_sample_keeps_what_changed_and_the_rest_every_ten_minutes(clock, monkeypatch) -> None:
    monkeypatch.setattr(stats, "PAGE", 1)
    make("idle")
    put(3)
    assert (sample(), QueueStat.objects.count()) == (2, 2)
    clock.advance(seconds=30)
    claim(1)
    assert sample() == 1
    clock.advance(minutes=10)
    assert sample() == 2
    newest = QueueStat.objects.filter(queue__name="work").latest("sampled_at")
    assert (newest.ready, newest.delayed, newest.leased, newest.sampled_at) == (3, 0, 0, clock.now)
    lost = newest.queue_id
    rows(Queue).all().delete()
    assert engine.run(stats.estimate()).orphans == [lost], "jobs whose queue is gone are found"
    assert sample() == 0


def test_large_tables_are_estimated_from_some_of_their_pages(settings, monkeypatch) -> None:
    settings.LEASEQUEUE = {"COUNT_CAP": 10}
    run("TRUNCATE leasequeue_ready")  # no pages that earlier tests left empty are in the sample
    for _ in range(3):
        enqueue(*[NewJob(data="x" * 200) for _ in range(4_000)])
    put(3, queue="work", delay_ms=60_000)
    monkeypatch.setattr(stats, "SAMPLE_PAGES", 20)
    sample()
    # 20 of about 140 pages at random: a wrong formula is off by the factor 7, chance by some twenty percent.
    assert 5_000 < count().ready < 25_000
    assert count().delayed == 3, "small figures are counted, not estimated"


def test_totals_sum_the_samples_of_a_project(clock) -> None:
    make("other")
    make("theirs", project="b")
    put(2)
    put(3, queue="other")
    put(7, queue="theirs", project="b")
    before = [(row.project, row.ready, row.sampled_at) for row in engine.run(engine.totals())]
    assert before == [("", 0, None), ("b", 0, None)]
    sample()
    assert [(row.project, row.queues, row.ready) for row in engine.run(engine.totals())] == [("", 2, 5), ("b", 1, 7)]
    (only,) = engine.run(engine.totals(project="b"))
    assert (only.ready, only.sampled_at) == (7, clock.now)
    assert engine.run(engine.totals(after="", size=1))[0].project == "b"

"""Enqueue: states, ranks, options per job, transactions, making queues, both ways in (statement, COPY); JSON."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine import NewJob, codec
from django_leasequeue.engine.jobs.new_jobs import COPY_FROM
from django_leasequeue.models import JobEvent, JobState, LiveJob, Queue
from tests.engine.helpers import claim, counts, enqueue, kinds, make, own_connection, put, seqs

#: Below it jobs go in one statement, from it on through COPY. The two must not differ.
SIZES = pytest.mark.parametrize("size", [1, COPY_FROM], ids=["statement", "copy"])


@SIZES
def test_the_answers_are_in_order_and_say_where_each_job_is(queue: int, clock, size: int) -> None:
    jobs = [NewJob(data=number, delay_ms=None if number % 2 else 1_000) for number in range(size)]
    answers = enqueue(*jobs)
    assert [answer.status.value for answer in answers] == ["queued"] * size
    assert [answer.state for answer in answers] == ["ready" if number % 2 else "delayed" for number in range(size)]
    assert {answer.created_at for answer in answers} == {clock.now}
    numbers = [answer.seq for answer in answers]
    assert numbers == sorted(set(numbers))
    assert [LiveJob.objects.get(pk=number).data for number in numbers] == list(range(size))


@SIZES
def test_every_field_arrives_whatever_it_holds(queue: int, clock, size: int) -> None:
    awkward = "a\\b\"c\n\t\r{},NULL 'x' \\N \\. \x07 \u2028 ü 🎉"
    job = NewJob(
        data={"text": awkward, awkward: [1.5, -0.0, True, None, 10**30]}, body=bytes(range(256)), name=awkward,
        tag=awkward, priority=4, meta={"m": awkward}, ttl_ms=60_000, reply_to="reply\\channel", result_ttl_ms=5_000,
        max_deliveries=3,
    )  # fmt: skip
    enqueue(*[job] * size, origin=awkward)
    for row in LiveJob.objects.all():
        assert (row.data, bytes(row.body)) == (job.data, job.body)
        assert (row.name, row.tag, row.meta, row.origin) == (awkward, awkward, job.meta, awkward)
        assert (row.rank, row.reply_to, row.result_ttl_ms, row.max_deliveries) == (-4, "reply\\channel", 5_000, 3)
        assert row.expires_at == clock.now + timedelta(seconds=60)
        assert (row.state, row.deliveries, row.position) == (JobState.READY, 0, row.seq)
    for leased in claim(size):
        assert (leased.data, leased.body, leased.meta) == (job.data, job.body, job.meta)
        assert (leased.queue, leased.name, leased.tag, leased.reply_to) == ("work", awkward, awkward, "reply\\channel")
        assert (leased.deliveries, leased.max_deliveries, leased.errors, leased.progress) == (1, 3, [], None)
        assert leased.created_at == leased.claimed_at == leased.first_claimed_at == clock.now
    enqueue(*[NewJob()] * size)
    bare = claim(size)[-1]
    assert (bare.data, bare.meta, bare.body, bare.key) == (None, None, None, None)


@SIZES
def test_awkward_keys(queue: int, size: int) -> None:
    keys = ["NULL", "null", "{}", "a,b", 'q"q', "b\\b", "\\N", "\\.", " ", "\t", "ü🎉"]
    jobs = [NewJob(key=key) for key in keys] + [NewJob(key=f"k{number}") for number in range(size)]
    enqueue(*jobs, fresh=True)
    assert {job.key for job in claim(1_000)} == {job.key for job in jobs}


@SIZES
@pytest.mark.parametrize(("options", "ranks"), [
    ({}, [0, -9, -9, -3, 0]), ({"priority_order": "asc"}, [0, 9, 9, 3, 0]),
    ({"priority_order": "none"}, [0, 0, 0, 0, 0]),
    ({"priority_order": "asc", "priority_min": 5, "priority_max": 7}, [5, 7, 7, 5, 5]),
], ids=str)  # fmt: skip
def test_a_priority_is_clamped_and_becomes_a_rank(db: None, options: dict, ranks: list[int], size: int) -> None:
    make("work", **options)
    priorities = [None, 9, 1_000, 3, -7]
    answers = enqueue(*[NewJob(priority=priority) for priority in priorities] * size)
    rank_of = dict(LiveJob.objects.values_list("seq", "rank"))
    assert [rank_of[answer.seq] for answer in answers] == ranks * size


@SIZES
def test_run_at_wins_over_a_delay_and_the_past_is_now(queue: int, clock, size: int) -> None:
    tomorrow = clock.now + timedelta(days=1)
    kinds_of = [
        NewJob(run_at=tomorrow, delay_ms=5), NewJob(run_at=clock.now - timedelta(days=1), delay_ms=5_000),
        NewJob(run_at=clock.now), NewJob(delay_ms=0), NewJob(delay_ms=1),
        NewJob(run_at=datetime(1, 1, 1, tzinfo=UTC)),
    ]  # fmt: skip
    answers = enqueue(*kinds_of * size)
    assert [answer.state for answer in answers[:6]] == ["delayed", "ready", "ready", "ready", "delayed", "ready"]
    assert LiveJob.objects.get(pk=answers[0].seq).available_at == tomorrow
    assert LiveJob.objects.get(pk=answers[1].seq).available_at is None
    assert LiveJob.objects.get(pk=answers[4].seq).available_at == clock.now + timedelta(milliseconds=1)


@SIZES
def test_records_of_a_log(db: None, size: int) -> None:
    log = make("records", type="log", ttl_ms=1_000)
    numbers = put(size, "records")
    assert set(LiveJob.objects.filter(queue_id=log).values_list("state", flat=True)) == {JobState.RECORD}
    assert not JobEvent.objects.filter(seq__in=numbers).exists()
    assert enqueue(NewJob(), queue="records")[0].state == "record"


@SIZES
def test_one_event_a_job(queue: int, clock, size: int) -> None:
    answers = enqueue(*[NewJob(name=f"task-{number % 3}") for number in range(size)])
    events = list(JobEvent.objects.order_by("seq"))
    assert [event.seq for event in events] == [answer.seq for answer in answers]
    for number, event in enumerate(events):
        assert (event.get_kind_display(), event.queue_id, event.name) == ("enqueued", queue, f"task-{number % 3}")
        assert event.occurred_at == clock.now
        assert (event.node, event.claim, event.deliveries, event.detail) == (None, None, None, None)
        assert event.txid > 0
    engine.run(engine.configure("work", log_enqueued=False))
    numbers = put(size)
    claim(1_000)
    assert kinds(numbers[0]) == ["claimed"]


@SIZES
@pytest.mark.django_db(transaction=True)
def test_it_belongs_to_the_transaction_of_the_caller(size: int) -> None:
    make("work")
    with transaction.atomic():
        put(size)
        with transaction.atomic():
            put(size)
            assert counts()["ready"] == 2 * size
            transaction.set_rollback(True)
        assert counts()["ready"] == size, "a savepoint takes it back"
        transaction.set_rollback(True)
    assert not LiveJob.objects.exists()
    assert not JobEvent.objects.exists()
    with own_connection() as other, transaction.atomic():
        numbers = put(size)
        assert other.run(engine.claim("work", "n", 1_000)) == []
        transaction.on_commit(lambda: got.extend(other.run(engine.claim("work", "n", 1_000))))
        got: list[engine.LeasedJob] = []
    assert seqs(got) == numbers
    engine.run(engine.ack(numbers, "n"))
    assert min(put(size)) > numbers[-1], "a number is never used twice"


@SIZES
def test_the_first_job_makes_the_queue(db: None, size: int) -> None:
    declared = {"declared": {"preset": "codeq", "lease_ms": 7_000}}
    with override_settings(LEASEQUEUE={"QUEUES": declared, "DEFAULT_PRESET": "jobqueue"}):
        put(size, "declared")
        put(size, "unknown")
        put(size, "declared", project="acme")
    made = {(queue.project, queue.name): queue for queue in Queue.objects.all()}
    assert (made["", "declared"].lease_ms, made["", "declared"].requeue) == (7_000, "back")
    assert (made["", "unknown"].max_deliveries, made["", "unknown"].dead_letter) == (3, "self")
    assert (made["acme", "declared"].lease_ms, counts("declared")["ready"]) == (30_000, size)


def test_payloads_that_postgres_and_python_write_differently(queue: int) -> None:
    values = [
        0, -1, 1e15, 1.0, "", [], {}, [[]], {"": None}, False, "\\u0000", "\ufffe", "\x7f", 2**80, 0.1 + 0.2, None,
    ]  # fmt: skip
    answers = enqueue(*[NewJob(data=value) for value in values])
    jobs = claim(100)
    assert [job.data for job in jobs] == values
    assert (len(answers), jobs[-1].data_json) == (len(values), None)


READ = [
    "null", '{"kwargs":{"i":1,"pad":"x"}}', ' \n{"a": [1.5, true]}\t ', '"\u00e9"', "1e300",
    "123456789012345678901234567890", "NaN",
]  # fmt: skip
REFUSED = ["", " ", "{", '{"a":1} {"b":2}', "[1,]", "\ufeff{}", "nul", "01"]


@pytest.mark.parametrize("text", READ)
def test_what_is_json_is_read_as_json_loads_reads_it(text: str) -> None:
    assert repr(codec.loads(text)) == repr(json.loads(text)) == repr(codec.loads(text.encode()))


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_is_refused_with_the_same_words(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as usual:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as ours:
        codec.loads(text)
    assert str(ours.value) == str(usual.value)


def test_hooks_are_heard() -> None:
    assert codec.loads("[1.5]", parse_float=str) == ["1.5"]

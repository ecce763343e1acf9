"""Bad input to every public call: a clear error of our own, and nothing changed."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.test import override_settings

import django_leasequeue
from django_leasequeue import engine, exceptions
from django_leasequeue.engine import Ending, Failure, Limited, NewJob, Release, parse_lease_id
from django_leasequeue.engine.jobs.read import get_jobs
from django_leasequeue.engine.jobs.results import Progress, progress, status, update_result_ttl
from django_leasequeue.engine.leases.floor import Proposals
from django_leasequeue.exceptions import BatchTooLarge, InvalidOption, NotAQueue, PayloadTooLarge, QueueNotFound
from django_leasequeue.models import Attempt, Claim, Delayed, JobResult, LeaseEvent, LiveJob, Queue, Ready, StoredJob
from tests.engine.flow import ONE
from tests.engine.helpers import NODE, enqueue, errors_of, make, one, put

LONE = "a\ud800b"
NUL = "a\x00b"
LONG = "ü" * 200
TOO_BIG = 2**63
CENTURY_MS = 101 * 366 * 86_400_000
# Times that no datetime holds.
CENTURIES = [CENTURY_MS, 90 * CENTURY_MS, 350 * CENTURY_MS]
BEYOND_UTC = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))

# Text that no parameter takes.
BAD_TEXT = [NUL, LONE, b"bytes", 7, True, ["x"]]
BAD_NODES = [None, "", LONG, *BAD_TEXT]
BAD_COUNTS = [True, 1.0, "1", -1, None]
BAD_SEQS = [True, 1.0, "1", -1, TOO_BIG, None]
BAD_TOKENS = [True, 1.0, "lease_1", TOO_BIG, -1]
BAD_FAILURES = ["it failed", 5, ValueError("x")]
BAD_TIMES = [True, 1.0, "1000", float("nan"), timedelta(seconds=1)]

Refused = Callable[..., None]
Operation = Callable[..., Any]
QUEUE_CALLS = (engine.get, engine.delete, engine.pause, engine.configure)

TABLES = (Queue, StoredJob, Ready, Delayed, Claim, JobResult, Attempt, LeaseEvent)


def snapshot() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in TABLES]


@pytest.fixture
def leased(queue: int) -> engine.LeasedJob:
    put(3)
    make("records", type="log")
    return one()


@pytest.fixture
def refused(leased: engine.LeasedJob) -> Iterator[Refused]:
    """Runs calls that must each raise one of our errors, and looks at the end whether anything changed."""
    before = snapshot()

    def check(function: Any, *args: Any, error: Any = InvalidOption, says: str = "", **kwargs: Any) -> None:
        call = f"{function.__name__}{args!r:.200} {kwargs!r:.200}"
        with pytest.raises(Exception) as caught:  # noqa: PT011 (looked at below, with the call)
            engine.run(function(*args, **kwargs))
            pytest.fail(f"{call} was taken")
        assert isinstance(caught.value, error), f"{call} raised {caught.value!r:.300}"
        message = str(caught.value)
        assert says in message, f"{call}: {message}"
        assert 10 < len(message) < 1_000, f"{call}: {message}"

    yield check
    assert snapshot() == before


class TestEnqueue:
    @pytest.mark.parametrize("size", [1, 3, 150], ids=["one", "some", "bulk"])
    def test_fields_of_a_job(self, refused: Refused, size: int) -> None:
        ring: list[Any] = []
        ring.append(ring)
        bad_fields = {
            "key": ["", "k" * 1025, *BAD_TEXT],
            "name": ["", "n" * 1025, *BAD_TEXT],
            "tag": ["", "t" * 257, *BAD_TEXT],
            "reply_to": ["", "c" * 64, *BAD_TEXT],
            "priority": [True, 1.5, "9", float("nan")],
            "delay_ms": [-1, 2**62, *CENTURIES, *BAD_TIMES],
            "ttl_ms": [0, -1, 2**62, *CENTURIES, *BAD_TIMES],
            "result_ttl_ms": [0, -1, 2**62, *CENTURIES, *BAD_TIMES],
            "max_deliveries": [-1, 2**31, True, 1.0, "3"],
            "run_at": [datetime(2030, 1, 1), "2030-01-01", 1_900_000_000, True, BEYOND_UTC],  # noqa: DTZ001
            "data": [
                *(float("nan"), float("inf"), {1, 2}, b"raw", {"a": object()}, LONE, {"k": LONE}, {LONE: 1}),
                *(NUL, {NUL: 1}, {"k": [NUL]}, {(1, 2): 3}, ring),
            ],
            "meta": [{"k": float("nan")}, {"k": NUL}, {"k": LONE}, ["list"], "text", 5],
            "body": ["text", 5, [1]],
        }
        for field, values in bad_fields.items():
            for bad in values:
                # One bad job refuses the whole call.
                refused(engine.enqueue, "work", [NewJob(data=1)] * (size - 1) + [NewJob(**{field: bad})], says=field)
        bad = NewJob(meta={"mine": 1, "$dead_letter_deliveries": "x"})
        refused(engine.enqueue, "work", [NewJob(data=1)] * (size - 1) + [bad], says="$dead_letter_deliveries")

    def test_the_doors_of_python_refuse_them_alike(self, queue: int) -> None:
        with pytest.raises(ValueError, match="reserved"):
            django_leasequeue.Queue("work").enqueue({"n": 1}, meta={"$mine": 1})
        django_leasequeue.Queue("work").enqueue({"$data": 1}, meta={"mine$": {"$within": 1}})

    def test_origin_project_and_queue(self, refused: Refused) -> None:
        for bad in BAD_TEXT:
            for size in (1, 150):
                refused(engine.enqueue, "work", [NewJob()] * size, origin=bad, says="origin")
                refused(engine.enqueue, "work", [NewJob()] * size, project=bad, says="project")
                refused(engine.enqueue, bad, [NewJob()] * size, says="queue")
        for name in ("", " work", ".x", "a/b", "ü", "x" * 256, "a\n"):
            refused(engine.enqueue, name, [NewJob()], says="queue")
        for bad in (NewJob(), None, 5, [{"data": 1}], [None], "job"):
            refused(engine.enqueue, "work", bad, says="NewJob")
        refused(engine.enqueue, "work", [NewJob()] * 10_001, error=BatchTooLarge, says="10000")

    def test_a_payload_that_is_too_large(self, refused: Refused) -> None:
        with override_settings(LEASEQUEUE={"MAX_PAYLOAD_BYTES": 1_000}):
            jobs = [NewJob(data="x" * 999), NewJob(data="ü" * 500), NewJob(body=b"x" * 1_001)]
            for job in (*jobs, NewJob(data="x" * 500, meta={"k": "x" * 500})):
                refused(engine.enqueue, "work", [job], error=PayloadTooLarge, says="1000")

    def test_what_is_at_its_bound_is_taken(self, queue: int) -> None:
        assert engine.run(engine.enqueue("work", [])) == []
        with override_settings(LEASEQUEUE={"MAX_PAYLOAD_BYTES": 1_000, "MAX_RESULT_BYTES": 1_000}):
            enqueue(NewJob(data="x" * 998), NewJob(data="ü" * 499), NewJob(body=b"x" * 1_000))
            ending = Ending(one().seq, result="x" * 998)
            assert engine.run(engine.finish([ending], NODE)).ok == [ending.seq]
        enqueue(NewJob(key="k" * 1024, tag="t" * 256, reply_to="c" * 63, name="n" * 200, priority=9))
        job = one(node="w" * 128)
        assert engine.run(engine.ack([job.seq], "w" * 128)).ok == [job.seq]

    def test_a_queue_that_may_not_be_made(self, refused: Refused) -> None:
        refused(engine.enqueue, "elsewhere", [NewJob()], create=False, error=QueueNotFound, says="elsewhere")
        with override_settings(LEASEQUEUE={"AUTO_CREATE": False}):
            for size in (1, 150):
                refused(engine.enqueue, "elsewhere", [NewJob()] * size, error=QueueNotFound, says="elsewhere")

    def test_a_priority_beyond_any_integer_is_clamped(self, queue: int) -> None:
        for size in (1, 150):
            enqueue(*[NewJob(priority=10**30), NewJob(priority=-(10**30))] * size)
        assert {job.rank for job in LiveJob.objects.all()} == {-9, 0}


def text_rows(says: str, *operations: Operation) -> list[tuple[str, Operation, list[Any]]]:
    return [(says, operation, BAD_TEXT) for operation in operations]


IDS = ["x"], [True], [-1], [TOO_BIG], [1.5], 5, "1"
#: What the message names, a call with a bad value, the bad values.
REFUSED: list[tuple[str, Operation, Iterable[Any]]] = [
    ("node", lambda bad, job: engine.claim("work", bad), BAD_NODES),
    ("number of jobs", lambda bad, job: engine.claim("work", NODE, bad), BAD_COUNTS),
    ("lease_ms", lambda bad, job: engine.claim("work", NODE, lease_ms=bad), BAD_TIMES),
    ("grace_ms", lambda bad, job: engine.claim("work", NODE, grace_ms=bad), BAD_TIMES),
    *text_rows("tag", lambda bad, job: engine.claim("work", NODE, tag=bad)),
    ("tags", lambda bad, job: engine.claim("work", NODE, tags=[bad]), BAD_TEXT),
    ("tags", lambda bad, job: engine.claim("work", NODE, tags=bad), ["red", b"red", 5, {"red"}, [], ["red", ""]]),
    ("1 to 20 tags", lambda bad, job: engine.claim("work", NODE, tags=bad), [[f"t{n}" for n in range(21)]]),
    ("tags", lambda bad, job: engine.claim("work", NODE, tags=bad), [["t" * 257]]),
    ("not both", lambda bad, job: engine.claim("work", NODE, tag="red", tags=bad), [["red"]]),
    ("connection", lambda bad, job: engine.claim("work", NODE, connection=bad), [*BAD_TEXT, "c" * 64 + ":1", ":1"]),
    *text_rows("project", lambda bad, job: engine.claim("work", NODE, project=bad)),
    ("queue", lambda bad, job: engine.claim(bad, NODE), [None, 5, [], "", [None], [["work"]], b"work", [LONE],
        [NUL]]),
    ("1 to 100", lambda bad, job: engine.claim(bad, NODE), [[f"q{n}" for n in range(101)]]),
    ("delay_ms", lambda bad, job: engine.nack([job.seq], NODE, delay_ms=bad), BAD_TIMES),
    ("delay_ms", lambda bad, job: engine.release([Release(job.seq, delay_ms=bad)], NODE), BAD_TIMES),
    ("lease_ms", lambda bad, job: engine.extend([job.seq], NODE, bad), BAD_TIMES),
    ("result_ttl_ms", lambda bad, job: engine.finish([Ending(job.seq, result_ttl_ms=bad)], NODE), [*BAD_TIMES, -1,
        CENTURY_MS, 2**62]),
    ("result", lambda bad, job: engine.finish([Ending(job.seq, result=bad)], NODE), [float("nan"), {1, 2}, b"raw",
        NUL, LONE, {"k": object()}]),
    ("body", lambda bad, job: engine.finish([Ending(job.seq, body=bad)], NODE), ["text", 5, [1]]),
    ("failure", lambda bad, job: engine.finish([Ending(job.seq, failure=bad)], NODE), BAD_FAILURES),
    ("failure", lambda bad, job: engine.release([Release(job.seq, failure=bad)], NODE), BAD_FAILURES),
    ("Ending", lambda bad, job: engine.finish(bad, NODE), [None, 5, [5], [None], "x"]),
    ("Release", lambda bad, job: engine.release(bad, NODE), [None, 5, [5], [None], "x"]),
    ("seq", lambda bad, job: engine.cancel("work", seqs=[bad]), BAD_SEQS),
    ("seq", lambda bad, job: engine.redrive("work", [bad]), BAD_SEQS),
    *text_rows("key", lambda bad, job: engine.cancel("work", keys=[bad])),
    ("keys", lambda bad, job: engine.cancel("work", keys=bad), ["a"]),
    *text_rows("queue", lambda bad, job: engine.cancel(bad, seqs=[1]), lambda bad, job: engine.purge(bad),
        lambda bad, job: engine.redrive(bad, [1]), *(lambda bad, job, call=call: call(bad) for call in QUEUE_CALLS)),
    *text_rows("project", lambda bad, job: engine.cancel("work", seqs=[1], project=bad), lambda bad,
        job: engine.purge("work", project=bad), lambda bad, job: engine.create("fresh", project=bad), lambda bad,
        job: engine.list_queues(project=bad), *(lambda bad, job, call=call: call("work",
        project=bad) for call in QUEUE_CALLS)),
    *text_rows("tag", lambda bad, job: engine.purge("work", tag=bad)),
    *text_rows("tag_prefix", lambda bad, job: engine.purge("work", tag_prefix=bad)),
    ("state", lambda bad, job: engine.purge("work", states=bad), [["running"], [0], [None], 5, "ready",
        [["ready"]]]),
    ("size", lambda bad, job: engine.purge("work", size=bad), [0, *BAD_COUNTS]),
    ("size", lambda bad, job: engine.expire_results(bad), [0, *BAD_COUNTS]),
    ("before", lambda bad, job: engine.purge("work", before=bad), [True, "5", -1, TOO_BIG, 1.5]),
    ("delay_ms", lambda bad, job: engine.redrive("work", [job.seq], delay_ms=bad), [True, "5", 1.5, [1, 2], ["x"],
        [True]]),
    ("queue", lambda bad, job: engine.create(bad), ["", " x", ".x", "a/b", "x" * 256, "a\n", None, *BAD_TEXT]),
    *text_rows("after", lambda bad, job: engine.list_queues(after=bad)),
    *text_rows("prefix", lambda bad, job: engine.list_queues(prefix=bad)),
    ("size", lambda bad, job: engine.list_queues(size=bad), [0, *BAD_COUNTS]),
    ("type", lambda bad, job: engine.list_queues(type=bad), ["stack"]),
    ("dead_letter", lambda bad, job: engine.configure("work", dead_letter=bad), ["work"]),
    ("preset", lambda bad, job: engine.create("fresh", preset=bad), ["nosuch", ["django"], 5, ""]),
    ("queue", lambda bad, job: engine.sweep(bad), [*IDS, None]),
    ("queue", lambda bad, job: engine.promote(bad), [*IDS, None]),
    ("queue", lambda bad, job: engine.expire(bad), [*IDS, None]),
    ("queue", lambda bad, job: engine.advance_floors(Proposals(), bad), IDS),
    *text_rows("queue", lambda bad, job: engine.list_jobs(bad), lambda bad, job: status(bad, keys=["a"]),
        lambda bad, job: engine.counts(bad), lambda bad, job: engine.counts_of([bad])),
    *text_rows("project", lambda bad, job: engine.list_jobs("work", project=bad), lambda bad, job: get_jobs([1],
        project=bad), lambda bad, job: engine.totals(project=bad)),
    *text_rows("fingerprint", lambda bad, job: engine.list_jobs("work", "dead", fingerprint=bad)),
    *text_rows("key", lambda bad, job: status("work", keys=[bad])),
    ("size", lambda bad, job: engine.list_jobs("work", size=bad), [0, *BAD_COUNTS]),
    ("size", lambda bad, job: engine.state("work", size=bad), [0, *BAD_COUNTS]),
    ("size", lambda bad, job: engine.totals(size=bad), [0, *BAD_COUNTS]),
    ("a state is one of", lambda bad, job: engine.list_jobs("work", bad), ["sleeping"]),
    ("seq", lambda bad, job: get_jobs([bad]), BAD_SEQS),
    ("list", lambda bad, job: status("work", **bad), [{"keys": "keys"}, {"seqs": "12"}]),
    ("list", lambda bad, job: engine.counts_of(bad), ["work"]),
    ("time to live", lambda bad, job: update_result_ttl("work", bad, key="a"), [0, *BAD_COUNTS]),
    ("the key of a limit must be", lambda bad, job: engine.enqueue("work", [NewJob(limit=Limited(bad, ONE))]),
        [None, "", "x" * 513, NUL, LONE]),
    ("limit must be a Limit", lambda bad, job: engine.enqueue("work", [NewJob(limit=bad)]), ["customer"]),
    ("'records' is a log", lambda bad, job: engine.enqueue("records", [NewJob(limit=bad)]), [Limited("x", ONE)]),
    ("not both", lambda bad, job: engine.create("fresh", concurrency=bad, claim_jitter_ms=100), [1]),
    ("key", lambda bad, job: engine.enqueue("work", [NewJob(key=bad, unique_until="end")]), [None, "", "é" * 257, NUL]),
]  # fmt: skip


@pytest.mark.parametrize(("says", "operation", "values"), REFUSED)
def test_refused(refused: Refused, leased, says: str, operation: Operation, values: Iterable[Any]) -> None:
    for bad in values:
        refused(operation, bad, leased, says=says)


SETTLE: dict[str, Any] = {"ack": engine.ack, "nack": engine.nack, "extend": engine.extend}


@pytest.mark.parametrize("settle", SETTLE.values(), ids=SETTLE)
class TestSettle:
    def test_what_is_refused(self, refused: Refused, leased, settle) -> None:
        for bad in (*([leased.seq, bad] for bad in BAD_SEQS), None, 5, "12", [[1]], [{}]):
            refused(settle, bad, NODE, says="seq")
        refused(settle, [*range(1_000), leased.seq], NODE, error=BatchTooLarge, says="1000")
        for bad in BAD_NODES:
            refused(settle, [leased.seq], bad, says="node")
        for bad in (*([bad] for bad in BAD_TOKENS), leased.token, "5", True):
            refused(settle, [leased.seq], NODE, tokens=bad, says="token")
        for bad in ([], [leased.token, leased.token]):
            refused(settle, [leased.seq], NODE, tokens=bad, says="one token per seq")
        for bad in BAD_TEXT:
            refused(settle, [leased.seq], NODE, project=bad, says="project")
            refused(settle, [leased.seq], NODE, queue=bad, says="queue")

    def test_a_thousand_are_taken_and_none_too(self, leased, settle) -> None:
        assert engine.run(settle([], NODE)).outcomes == {}
        settled = engine.run(settle([leased.seq, *range(10**12, 10**12 + 999)], NODE))
        assert (settled.ok, len(settled.skipped)) == ([leased.seq], 999)


@pytest.mark.parametrize(("error", "says", "operation"), [
    (BatchTooLarge, "1000", lambda job: engine.finish([Ending(job.seq)] * 1_001, NODE)),
    (BatchTooLarge, "1000", lambda job: engine.release([Release(job.seq)] * 1_001, NODE)),
    (BatchTooLarge, "", lambda job: engine.cancel("work", keys=["k"] * 1_001)),
    (BatchTooLarge, "", lambda job: engine.cancel("work", seqs=list(range(1_001)))),
    (BatchTooLarge, "", lambda job: engine.redrive("work", list(range(1_001)))),
    (PayloadTooLarge, "1000", lambda job: engine.finish([Ending(job.seq, result="x" * 999)], NODE)),
    (PayloadTooLarge, "1000", lambda job: engine.finish([Ending(job.seq, body=b"x" * 1_001)], NODE)),
    (QueueNotFound, "nowhere", lambda job: engine.purge("nowhere")),
    (QueueNotFound, "nowhere", lambda job: engine.redrive("nowhere", [1])),
    (QueueNotFound, "nowhere", lambda job: engine.redrive("work", [1], to="nowhere")),
    (NotAQueue, "records", lambda job: engine.redrive("work", [1], to="records")),
    (QueueNotFound, "nowhere", lambda job: engine.configure("nowhere")),
    (QueueNotFound, "nowhere", lambda job: engine.pause("nowhere")),
    (QueueNotFound, "nowhere", lambda job: engine.list_jobs("nowhere")),
    (QueueNotFound, "nowhere", lambda job: engine.state("nowhere")),
    (BatchTooLarge, "1000", lambda job: status("work", keys=[str(number) for number in range(1_001)])),
    (PayloadTooLarge, "", lambda job: progress([Progress(job.seq, job.token, "x" * 70_000)], NODE)),
    (exceptions.QueueConflict, "type", lambda job: engine.configure("work", type="log")),
])  # fmt: skip
def test_refused_by_another_error(refused: Refused, leased, error, says: str, operation) -> None:
    with override_settings(LEASEQUEUE={"MAX_RESULT_BYTES": 1_000}):
        refused(operation, leased, error=error, says=says)


@pytest.mark.parametrize("bad", [-1, 2**62])
def test_grace_out_of_range_is_clamped(queue: int, clock, bad: int) -> None:
    enqueue(NewJob(ttl_ms=1_000))
    job = one(grace_ms=bad)
    expires = LiveJob.objects.get(pk=job.seq).expires_at
    assert timedelta() <= expires - job.deadline <= timedelta(days=1)


def test_anything_can_be_recorded_as_a_failure(leased) -> None:
    failure = Failure(f"app.{NUL}{LONE}" * 100, NUL + LONE * 2_000, f"{NUL}{LONE}trace" * 5_000, LONE + NUL)
    settled = engine.run(engine.release([Release(leased.seq, leased.token, 0, failure)], NODE))
    assert settled.ok == [leased.seq]
    job = LiveJob.objects.get(pk=leased.seq)
    assert "\x00" not in job.error
    (error,) = errors_of(job.pk)
    assert len(error["traceback"]) <= 16_384
    assert len(error["message"]) <= 1_024


def test_options_of_queues(refused: Refused) -> None:
    bad_options = {
        "type": ["stack", None, ["queue"]], "requeue": ["front"], "priority_order": ["up"],
        "priority_min": [-32_768, 10], "priority_max": [32_768, True, -1], "lease_ms": ["5", True, None],
        "late_ack": ["maybe"], "leases_durable": [1], "claim_jitter_ms": [1.5], "max_deliveries": [-1, 2**31],
        "exhaust_at": ["never"], "dead_letter": ["a b", 5, ""], "dead_ttl_ms": [-1], "backoff": ["random", None],
        "backoff_base_ms": [-1], "backoff_max_ms": [86_400_001], "result_ttl_ms": [-1, True], "dedup_until": ["ever"],
        "ttl_ms": [-1, 2**62], "cap_records": [-1], "cap_bytes": [-1], "discard": ["new"], "durability": ["raid"],
        "idempotency_window_ms": [-1], "log_enqueued": ["yes"], "serializer": ["", 5, NUL],
        "metadata": [[], {"k": NUL}, {"k": float("nan")}], "nonsense": [1],
    }  # fmt: skip
    for option, values in bad_options.items():
        for bad in values:
            refused(engine.configure, "work", **{option: bad}, says=option)
            refused(engine.create, "fresh", **{option: bad}, says=option)


def test_tokens() -> None:
    for bad in ("", "lease_", *("lease_" + digits for digits in ("0" * 31, "0" * 33, "G" * 32, "A" * 32)), None, 5):
        with pytest.raises(InvalidOption, match="lease id"):
            parse_lease_id(bad)


def test_every_error_is_ours() -> None:
    for error in (BatchTooLarge, PayloadTooLarge, exceptions.QueueConflict, QueueNotFound, NotAQueue, InvalidOption):
        assert issubclass(error, exceptions.LeaseQueueError)
    assert issubclass(InvalidOption, ValueError)

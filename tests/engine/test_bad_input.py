"""Bad input to every public call: a clear error of our own, and nothing changed."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.test import override_settings

import django_leasequeue
from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Release, parse_lease_id
from django_leasequeue.engine.leases.floor import Proposals
from django_leasequeue.exceptions import (
    BatchTooLarge,
    InvalidOption,
    LeaseQueueError,
    NotAQueue,
    PayloadTooLarge,
    QueueConflict,
    QueueNotFound,
)
from django_leasequeue.models import Attempt, Claim, Delayed, JobResult, LeaseEvent, LiveJob, Queue, Ready, StoredJob

from .helpers import NODE, claim, enqueue, errors_of, make, one, put, state

LONE = "a\ud800b"
NUL = "a\x00b"
LONG = "ü" * 200
TOO_BIG = 2**63
CENTURY_MS = 101 * 366 * 86_400_000

# Text that no parameter takes.
BAD_TEXT = [NUL, LONE, b"bytes", 7, True, ["x"]]
BAD_NODES = [None, "", LONG, *BAD_TEXT]
BAD_COUNTS = [True, 1.0, "1", -1, None]
BAD_SEQS = [True, 1.0, "1", -1, TOO_BIG, None]
BAD_TOKENS = [True, 1.0, "lease_1", TOO_BIG, -1]
BAD_TIMES = [True, 1.0, "1000", float("nan"), timedelta(seconds=1)]

Refused = Callable[..., None]

TABLES = (Queue, StoredJob, Ready, Delayed, Claim, JobResult, Attempt, LeaseEvent)


def snapshot() -> list[Any]:
    """Everything that a refused call must not change."""
    return [list(model.objects.order_by("pk").values()) for model in TABLES]


@pytest.fixture
def leased(queue: int) -> engine.LeasedJob:
    put(3)
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
    @pytest.mark.parametrize("size", [1, 150], ids=["one", "bulk"])
    def test_fields_of_a_job(self, refused: Refused, size: int) -> None:
        bad_fields = {
            "key": ["", "k" * 1025, *BAD_TEXT],
            "name": ["", "n" * 1025, *BAD_TEXT],
            "tag": ["", "t" * 257, *BAD_TEXT],
            "reply_to": ["", "c" * 64, *BAD_TEXT],
            "priority": [True, 1.5, "9", float("nan")],
            "delay_ms": [-1, 2**62, *BAD_TIMES],
            "ttl_ms": [0, -1, 2**62, *BAD_TIMES],
            "result_ttl_ms": [0, -1, 2**62, *BAD_TIMES],
            "max_deliveries": [-1, 2**31, True, 1.0, "3"],
            "run_at": [datetime(2030, 1, 1), "2030-01-01", 1_900_000_000, True],  # noqa: DTZ001
            "data": [
                *(float("nan"), float("inf"), {1, 2}, b"raw", {"a": object()}, LONE, {"k": LONE}, {LONE: 1}),
                *(NUL, {NUL: 1}, {"k": [NUL]}, {(1, 2): 3}),
            ],
            "meta": [{"k": float("nan")}, {"k": NUL}, {"k": LONE}, ["list"], "text", 5],
            "body": ["text", 5, [1]],
        }
        for field, values in bad_fields.items():
            for bad in values:
                jobs = [NewJob(data=1)] * (size - 1) + [NewJob(**{field: bad})]
                refused(engine.enqueue, "work", jobs[-3:] if size == 1 else jobs, says=field)

    @pytest.mark.parametrize("size", [1, 3, 150], ids=["one", "some", "bulk"])
    def test_names_in_meta_that_are_the_queues_own(self, refused: Refused, size: int) -> None:
        bad = NewJob(meta={"mine": 1, "$dead_letter_deliveries": "x"})
        refused(engine.enqueue, "work", [NewJob(data=1)] * (size - 1) + [bad], says="$dead_letter_deliveries")

    def test_the_doors_of_python_refuse_them_alike(self, queue: int) -> None:
        with pytest.raises(ValueError, match="reserved"):
            django_leasequeue.Queue("work").enqueue({"n": 1}, meta={"$mine": 1})
        django_leasequeue.Queue("work").enqueue({"$data": 1}, meta={"mine$": {"$within": 1}})

    def test_data_that_contains_itself(self, refused: Refused) -> None:
        ring: list[Any] = []
        ring.append(ring)
        refused(engine.enqueue, "work", [NewJob(data=ring)], says="data")

    @pytest.mark.parametrize("size", [1, 150], ids=["one", "bulk"])
    def test_times_that_no_datetime_holds(self, refused: Refused, size: int) -> None:
        for span in (CENTURY_MS, 90 * CENTURY_MS, 350 * CENTURY_MS):
            for field in ("delay_ms", "ttl_ms", "result_ttl_ms"):
                refused(engine.enqueue, "work", [NewJob(**{field: span})] * size, says=field)
        last = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))
        refused(engine.enqueue, "work", [NewJob(run_at=last)] * size, says="run_at")

    def test_origin_project_and_queue(self, refused: Refused) -> None:
        for bad in BAD_TEXT:
            for size in (1, 150):
                refused(engine.enqueue, "work", [NewJob()] * size, origin=bad, says="origin")
                refused(engine.enqueue, "work", [NewJob()] * size, project=bad, says="project")
                refused(engine.enqueue, bad, [NewJob()] * size, says="queue")

    def test_a_queue_that_cannot_be_made(self, refused: Refused) -> None:
        for name in ("", " work", ".x", "a/b", "ü", "x" * 256, "a\n"):
            refused(engine.enqueue, name, [NewJob()], says="queue")

    def test_something_else_than_a_list_of_jobs(self, refused: Refused) -> None:
        for bad in (NewJob(), None, 5, [{"data": 1}], [None], "job"):
            refused(engine.enqueue, "work", bad, says="NewJob")

    def test_too_many(self, refused: Refused) -> None:
        refused(engine.enqueue, "work", [NewJob()] * 10_001, error=BatchTooLarge, says="10000")

    def test_a_payload_that_is_too_large(self, refused: Refused) -> None:
        with override_settings(LEASEQUEUE={"MAX_PAYLOAD_BYTES": 1_000}):
            for job in (
                NewJob(data="x" * 999),
                NewJob(data="ü" * 500),
                NewJob(body=b"x" * 1_001),
                NewJob(data="x" * 500, meta={"k": "x" * 500}),
            ):
                refused(engine.enqueue, "work", [job], error=PayloadTooLarge, says="1000")

    def test_a_payload_at_its_bound_is_taken(self, queue: int) -> None:
        with override_settings(LEASEQUEUE={"MAX_PAYLOAD_BYTES": 1_000}):
            enqueue(NewJob(data="x" * 998), NewJob(data="ü" * 499), NewJob(body=b"x" * 1_000))

    def test_one_bad_job_refuses_the_whole_call(self, refused: Refused) -> None:
        refused(engine.enqueue, "work", [NewJob(data=1), NewJob(data=2), NewJob(data=float("nan"))])

    def test_a_queue_that_may_not_be_made(self, refused: Refused) -> None:
        refused(engine.enqueue, "elsewhere", [NewJob()], create=False, error=QueueNotFound, says="elsewhere")
        with override_settings(LEASEQUEUE={"AUTO_CREATE": False}):
            for size in (1, 150):
                refused(engine.enqueue, "elsewhere", [NewJob()] * size, error=QueueNotFound, says="elsewhere")

    def test_nothing_to_enqueue_is_no_error(self, queue: int) -> None:
        assert engine.run(engine.enqueue("work", [])) == []

    def test_a_priority_beyond_any_integer_is_clamped(self, queue: int) -> None:
        for size in (1, 150):
            enqueue(*[NewJob(priority=10**30), NewJob(priority=-(10**30))] * size)
        assert {job.rank for job in LiveJob.objects.all()} == {-9, 0}

    def test_text_at_its_bound_is_taken(self, queue: int) -> None:
        enqueue(NewJob(key="k" * 1024, tag="t" * 256, reply_to="c" * 63, name="n" * 200))
        job = one(node="w" * 128)
        assert engine.run(engine.ack([job.seq], "w" * 128)).ok == [job.seq]


class TestClaim:
    def test_node(self, refused: Refused) -> None:
        for bad in BAD_NODES:
            refused(engine.claim, "work", bad, says="node")

    def test_numbers(self, refused: Refused) -> None:
        for bad in BAD_COUNTS:
            refused(engine.claim, "work", NODE, bad, says="number of jobs")
        for bad in BAD_TIMES:
            refused(engine.claim, "work", NODE, lease_ms=bad, says="lease_ms")
            refused(engine.claim, "work", NODE, grace_ms=bad, says="grace_ms")

    @pytest.mark.parametrize("bad", [-1, 2**62])
    def test_grace_out_of_range_is_clamped(self, queue: int, clock, bad: int) -> None:
        enqueue(NewJob(ttl_ms=1_000))
        job = one(grace_ms=bad)
        expires = LiveJob.objects.get(pk=job.seq).expires_at
        assert timedelta() <= expires - job.deadline <= timedelta(days=1)

    def test_texts(self, refused: Refused) -> None:
        for bad in BAD_TEXT:
            refused(engine.claim, "work", NODE, tag=bad, says="tag")
            refused(engine.claim, "work", NODE, tags=[bad], says="tags")
            refused(engine.claim, "work", NODE, connection=bad, says="connection")
            refused(engine.claim, "work", NODE, connection="c" * 64 + ":1", says="connection")
            refused(engine.claim, "work", NODE, connection=":1", says="connection")
            refused(engine.claim, "work", NODE, project=bad, says="project")
            refused(engine.claim, [bad], NODE, says="queue")

    def test_tags(self, refused: Refused) -> None:
        many = [f"t{number}" for number in range(21)]
        for bad in ("red", b"red", 5, {"red"}, [], ["red", ""], ["t" * 257], many):
            refused(engine.claim, "work", NODE, tags=bad, says="tags")
        refused(engine.claim, "work", NODE, tag="red", tags=["red"], says="not both")

    def test_queues(self, refused: Refused) -> None:
        for bad in (None, 5, [], "", [None], [["work"]], NUL, b"work", [LONE]):
            refused(engine.claim, bad, NODE, says="queue")


SETTLE: dict[str, Any] = {"ack": engine.ack, "nack": engine.nack, "extend": engine.extend}


@pytest.mark.parametrize("settle", SETTLE.values(), ids=SETTLE)
class TestSettle:
    def test_seqs(self, refused: Refused, leased, settle) -> None:
        for bad in BAD_SEQS:
            refused(settle, [leased.seq, bad], NODE, says="seq")
        for bad in (None, 5, "12", [[1]], [{}]):
            refused(settle, bad, NODE, says="seq")

    def test_too_many(self, refused: Refused, leased, settle) -> None:
        refused(settle, [*range(1_000), leased.seq], NODE, error=BatchTooLarge, says="1000")

    def test_a_thousand_are_taken(self, leased, settle) -> None:
        settled = engine.run(settle([leased.seq, *range(10**12, 10**12 + 999)], NODE))
        assert settled.ok == [leased.seq]
        assert len(settled.skipped) == 999

    def test_node(self, refused: Refused, leased, settle) -> None:
        for bad in BAD_NODES:
            refused(settle, [leased.seq], bad, says="node")

    def test_tokens(self, refused: Refused, leased, settle) -> None:
        for bad in BAD_TOKENS:
            refused(settle, [leased.seq], NODE, tokens=[bad], says="token")
        for bad in ([], [leased.token, leased.token]):
            refused(settle, [leased.seq], NODE, tokens=bad, says="one token per seq")
        for bad in (leased.token, "5", True):
            refused(settle, [leased.seq], NODE, tokens=bad, says="token")

    def test_project_and_queue(self, refused: Refused, leased, settle) -> None:
        for bad in BAD_TEXT:
            refused(settle, [leased.seq], NODE, project=bad, says="project")
            refused(settle, [leased.seq], NODE, queue=bad, says="queue")

    def test_nothing_to_settle_is_no_error(self, leased, settle) -> None:
        assert engine.run(settle([], NODE)).outcomes == {}


class TestSettleOptions:
    def test_times(self, refused: Refused, leased) -> None:
        for bad in BAD_TIMES:
            refused(engine.nack, [leased.seq], NODE, delay_ms=bad, says="delay_ms")
            refused(engine.release, [Release(leased.seq, delay_ms=bad)], NODE, says="delay_ms")
            refused(engine.extend, [leased.seq], NODE, bad, says="lease_ms")
            refused(engine.finish, [Ending(leased.seq, result_ttl_ms=bad)], NODE, says="result_ttl_ms")
        for bad in (-1, CENTURY_MS, 2**62):
            refused(engine.finish, [Ending(leased.seq, result_ttl_ms=bad)], NODE, says="result_ttl_ms")

    def test_results(self, refused: Refused, leased) -> None:
        for bad in (float("nan"), {1, 2}, b"raw", NUL, LONE, {"k": object()}):
            refused(engine.finish, [Ending(leased.seq, result=bad)], NODE, says="result")
        for bad in ("text", 5, [1]):
            refused(engine.finish, [Ending(leased.seq, body=bad)], NODE, says="body")

    def test_failures(self, refused: Refused, leased) -> None:
        for bad in ("it failed", 5, ValueError("x")):
            refused(engine.finish, [Ending(leased.seq, failure=bad)], NODE, says="failure")
            refused(engine.release, [Release(leased.seq, failure=bad)], NODE, says="failure")

    def test_something_else_than_endings_or_releases(self, refused: Refused) -> None:
        for bad in (None, 5, [5], [None], "x"):
            refused(engine.finish, bad, NODE, says="Ending")
            refused(engine.release, bad, NODE, says="Release")

    def test_too_many(self, refused: Refused, leased) -> None:
        refused(engine.finish, [Ending(leased.seq)] * 1_001, NODE, error=BatchTooLarge, says="1000")
        refused(engine.release, [Release(leased.seq)] * 1_001, NODE, error=BatchTooLarge, says="1000")

    def test_a_result_that_is_too_large(self, refused: Refused, leased) -> None:
        with override_settings(LEASEQUEUE={"MAX_RESULT_BYTES": 1_000}):
            for ending in (Ending(leased.seq, result="x" * 999), Ending(leased.seq, body=b"x" * 1_001)):
                refused(engine.finish, [ending], NODE, error=PayloadTooLarge, says="1000")

    def test_a_result_at_its_bound_is_taken(self, leased) -> None:
        with override_settings(LEASEQUEUE={"MAX_RESULT_BYTES": 1_000}):
            assert engine.run(engine.finish([Ending(leased.seq, result="x" * 998)], NODE)).ok == [leased.seq]

    def test_anything_can_be_recorded_as_a_failure(self, leased) -> None:
        """The text of an exception may hold what PostgreSQL cannot store: the failure is recorded all the same."""
        failure = Failure(f"app.{NUL}{LONE}" * 100, NUL + LONE * 2_000, f"{NUL}{LONE}trace" * 5_000, LONE + NUL)
        settled = engine.run(engine.release([Release(leased.seq, leased.token, 0, failure)], NODE))
        assert settled.ok == [leased.seq]
        job = LiveJob.objects.get(pk=leased.seq)
        assert "\x00" not in job.error
        (error,) = errors_of(job.pk)
        assert len(error["traceback"]) <= 16_384
        assert len(error["message"]) <= 1_024


class TestTakingOut:
    def test_seqs(self, refused: Refused) -> None:
        for bad in BAD_SEQS:
            refused(engine.cancel, "work", seqs=[bad], says="seq")
            refused(engine.redrive, "work", [bad], says="seq")

    def test_texts(self, refused: Refused) -> None:
        for bad in BAD_TEXT:
            refused(engine.cancel, "work", keys=[bad], says="key")
            refused(engine.cancel, bad, seqs=[1], says="queue")
            refused(engine.cancel, "work", seqs=[1], project=bad, says="project")
            refused(engine.purge, "work", tag=bad, says="tag")
            refused(engine.purge, "work", tag_prefix=bad, says="tag_prefix")
            refused(engine.purge, bad, says="queue")
            refused(engine.purge, "work", project=bad, says="project")
            refused(engine.redrive, bad, [1], says="queue")
        refused(engine.cancel, "work", keys="a", says="keys")

    def test_what_to_purge(self, refused: Refused) -> None:
        for bad in (["running"], [0], [None], 5, "ready", [["ready"]]):
            refused(engine.purge, "work", states=bad, says="state")
        for bad in (0, *BAD_COUNTS):
            refused(engine.purge, "work", size=bad, says="size")
            refused(engine.expire_results, bad, says="size")
        for bad in (True, "5", -1, TOO_BIG, 1.5):
            refused(engine.purge, "work", before=bad, says="before")

    def test_too_many(self, refused: Refused) -> None:
        many = list(range(1_001))
        refused(engine.cancel, "work", keys=["k"] * 1_001, error=BatchTooLarge)
        refused(engine.cancel, "work", seqs=many, error=BatchTooLarge)
        refused(engine.redrive, "work", many, error=BatchTooLarge)

    def test_delays_of_a_redrive(self, refused: Refused, leased) -> None:
        for bad in (True, "5", 1.5, [1, 2], ["x"], [True]):
            refused(engine.redrive, "work", [leased.seq], delay_ms=bad, says="delay_ms")

    def test_missing_queues(self, refused: Refused, leased) -> None:
        refused(engine.purge, "nowhere", error=QueueNotFound)
        refused(engine.redrive, "nowhere", [1], error=QueueNotFound)
        refused(engine.redrive, "work", [1], to="nowhere", error=QueueNotFound)
        assert engine.run(engine.cancel("nowhere", seqs=[leased.seq])) == []

    def test_a_log_is_no_target_of_a_redrive(self, leased) -> None:
        make("records", type="log")
        with pytest.raises(NotAQueue):
            engine.run(engine.redrive("work", [1], to="records"))


class TestQueues:
    def test_names(self, refused: Refused) -> None:
        for bad in ("", " x", ".x", "a/b", "x" * 256, "a\n", None, *BAD_TEXT):
            refused(engine.create, bad, says="queue")
        for bad in BAD_TEXT:
            for call in (engine.get, engine.delete, engine.pause, engine.configure):
                refused(call, bad, says="queue")
                refused(call, "work", project=bad, says="project")
            refused(engine.create, "fresh", project=bad, says="project")
            refused(engine.list_queues, project=bad, says="project")
            refused(engine.list_queues, after=bad, says="after")
            refused(engine.list_queues, prefix=bad, says="prefix")

    def test_listing(self, refused: Refused) -> None:
        for bad in (0, *BAD_COUNTS):
            refused(engine.list_queues, size=bad, says="size")
        refused(engine.list_queues, type="stack", says="type")

    def test_missing_queues(self, refused: Refused) -> None:
        refused(engine.configure, "nowhere", error=QueueNotFound)
        refused(engine.pause, "nowhere", error=QueueNotFound)

    def test_a_change_of_type(self, refused: Refused) -> None:
        refused(engine.configure, "work", type="log", error=QueueConflict, says="type")

    def test_options(self, refused: Refused) -> None:
        bad_options = {
            "type": ["stack", None, ["queue"]],
            "requeue": ["front"],
            "priority_order": ["up"],
            "priority_min": [-32_768, 10],
            "priority_max": [32_768, True, -1],
            "lease_ms": ["5", True, None],
            "late_ack": ["maybe"],
            "leases_durable": [1],
            "claim_jitter_ms": [1.5],
            "max_deliveries": [-1, 2**31],
            "exhaust_at": ["never"],
            "dead_letter": ["a b", 5, ""],
            "dead_ttl_ms": [-1],
            "backoff": ["random", None],
            "backoff_base_ms": [-1],
            "backoff_max_ms": [86_400_001],
            "result_ttl_ms": [-1, True],
            "dedup_until": ["ever"],
            "ttl_ms": [-1, 2**62],
            "cap_records": [-1],
            "cap_bytes": [-1],
            "discard": ["new"],
            "durability": ["raid"],
            "idempotency_window_ms": [-1],
            "log_enqueued": ["yes"],
            "serializer": ["", 5, NUL],
            "metadata": [[], {"k": NUL}, {"k": float("nan")}],
            "nonsense": [1],
        }
        for option, values in bad_options.items():
            for bad in values:
                refused(engine.configure, "work", **{option: bad}, says=option)
                refused(engine.create, "fresh", **{option: bad}, says=option)
        refused(engine.configure, "work", dead_letter="work", says="dead_letter")

    def test_presets(self, refused: Refused) -> None:
        for bad in ("nosuch", ["django"], 5, ""):
            refused(engine.create, "fresh", preset=bad, says="preset")

    def test_ids(self, refused: Refused) -> None:
        for bad in (["x"], [True], [-1], [TOO_BIG], [1.5], 5, "1", None):
            for call in (engine.sweep, engine.promote, engine.expire):
                refused(call, bad, says="queue")
            if bad is not None:
                refused(engine.advance_floors, Proposals(), bad, says="queue")


def test_tokens() -> None:
    for bad in ("", "lease_", *("lease_" + digits for digits in ("0" * 31, "0" * 33, "G" * 32, "A" * 32)), None, 5):
        with pytest.raises(InvalidOption, match="lease id"):
            parse_lease_id(bad)


def test_every_error_is_ours() -> None:
    for error in (BatchTooLarge, PayloadTooLarge, QueueConflict, QueueNotFound, NotAQueue, InvalidOption):
        assert issubclass(error, LeaseQueueError)
    assert issubclass(InvalidOption, ValueError)


def test_the_jobs_go_on_after_refusals(queue: int) -> None:
    (number,) = put()
    for bad in (NUL, LONE):
        with pytest.raises(InvalidOption):
            claim(1, node=bad)
    assert state(number) == "ready"
    assert engine.run(engine.enqueue("work", [NewJob(run_at=datetime(2020, 1, 1, tzinfo=UTC))]))[0].state == "ready"

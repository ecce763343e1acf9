"""Ack, nack, extend, release, finish: who may settle what, and what becomes of it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, LeasedJob, NewJob, Release, Settled
from django_leasequeue.models import Claim, JobResult, LiveJob, StoredJob

from . import helpers
from .helpers import NODE, OTHER, claim, counts, enqueue, errors_of, kinds, last_event, make, one, outcomes, put, seqs

pytestmark = pytest.mark.usefixtures("queue")

Settle = Callable[..., Settled]


@pytest.fixture
def job(queue: int) -> LeasedJob:
    put()
    return one()


def pairs(seqs: list[int], tokens: list[int] | None) -> Iterator[tuple[int, int | None]]:
    return zip(seqs, tokens or [None] * len(seqs), strict=True)


#: Every way to settle: each must answer alike to who asks and when.
SETTLE: dict[str, Any] = {
    "ack": engine.ack,
    "nack": engine.nack,
    "extend": lambda seqs, node, **call: engine.extend(seqs, node, 60_000, **call),
    "fail": lambda seqs, node, tokens=None, **call: engine.finish(
        [Ending(seq, token, failure=Failure("app.Broken")) for seq, token in pairs(seqs, tokens)], node, **call
    ),
    "release": lambda seqs, node, tokens=None, **call: engine.release(
        [Release(seq, token) for seq, token in pairs(seqs, tokens)], node, **call
    ),
}


@pytest.fixture(params=SETTLE.values(), ids=SETTLE)
def settle(request: pytest.FixtureRequest) -> Settle:
    return lambda seqs, node=NODE, **call: engine.run(request.param(seqs, node, **call))


class TestOutcomes:
    def test_each_in_the_order_asked(self, settle: Settle) -> None:
        make("other")
        make("records", type="log")
        delayed, mine, theirs, ready = put(4)
        (record,), (elsewhere,) = put(queue="records"), put(queue="other")
        assert one().seq == delayed
        engine.run(engine.nack([delayed], NODE, delay_ms=60_000))
        assert [one().seq, one(node=OTHER).seq, one("other").seq] == [mine, theirs, elsewhere]
        settled = settle([theirs, 10**12, mine, delayed, ready, record, elsewhere])
        assert list(settled.outcomes) == [theirs, 10**12, mine, delayed, ready, record, elsewhere]
        assert outcomes(settled) == ["not_held", "not_found", "ok", "not_held", "not_held", "not_held", "ok"]
        assert (settled.ok, settled.skipped) == ([mine, elsewhere], [theirs, 10**12, delayed, ready, record])

    def test_a_seq_twice_counts_once_and_a_repeat_is_skipped(self, settle: Settle, request, job: LeasedJob) -> None:
        assert outcomes(settle([job.seq, job.seq], tokens=[job.token, job.token])) == ["ok"]
        assert len(kinds(job.seq)) == 3
        again = {"ack": "not_found", "fail": "not_found", "nack": "not_held", "release": "not_held", "extend": "ok"}
        assert outcomes(settle([job.seq])) == [again[request.node.callspec.id]]

    def test_who_does_not_hold_it_is_told_so_and_changes_nothing(self, settle: Settle, job: LeasedJob) -> None:
        make("other")
        before = LiveJob.objects.values().get()
        for node, call, outcome in (
            *((NODE, {"tokens": [job.token + 1]}, "stale_token"), (OTHER, {"tokens": [job.token]}, "not_held")),
            *((OTHER, {}, "not_held"), (NODE, {"queue": "other"}, "not_found"), (NODE, {"queue": "no"}, "not_found")),
        ):
            assert outcomes(settle([job.seq], node, **call)) == [outcome], (node, call)
        assert LiveJob.objects.values().get() == before
        assert outcomes(settle([job.seq], tokens=[job.token], queue="work")) == ["ok"]


class TestAfterTheDeadline:
    def test_the_last_microsecond_counts_and_none_after_it(self, clock, settle: Settle, job: LeasedJob) -> None:
        clock.now = job.deadline + timedelta(microseconds=1)
        before = LiveJob.objects.values().get()
        assert outcomes(settle([job.seq], tokens=[job.token])) == ["expired"]
        assert LiveJob.objects.values().get() == before
        clock.now = job.deadline
        assert outcomes(settle([job.seq])) == ["ok"]

    @pytest.mark.parametrize("node", [OTHER, NODE])
    def test_a_late_worker_never_settles_what_is_held_again(self, clock, settle, job: LeasedJob, node: str) -> None:
        clock.advance(seconds=31)
        held = one(node=node)
        before = LiveJob.objects.values().get()
        assert outcomes(settle([job.seq], tokens=[job.token])) == ["stale_token"]
        assert outcomes(settle([job.seq], OTHER, tokens=[job.token])) == ["stale_token"]
        if node == OTHER:
            assert outcomes(settle([job.seq])) == ["not_held"]
        assert LiveJob.objects.values().get() == before
        assert outcomes(settle([held.seq], node, tokens=[held.token])) == ["ok"]

    @pytest.mark.parametrize("taken", [False, True])
    def test_a_queue_may_accept_it_unless_somebody_else_came(self, clock, settle: Settle, taken: bool) -> None:
        make("lenient", late_ack="accept")
        put(queue="lenient")
        job = one("lenient")
        clock.advance(seconds=3_600)
        if taken:
            one("lenient", OTHER)
        assert outcomes(settle([job.seq], tokens=[job.token])) == ["stale_token" if taken else "ok"]


class TestNack:
    def test_makes_the_job_ready_at_its_old_place_any_number_of_times(self) -> None:
        numbers = put(3)
        for delivery, delay_ms in enumerate([0, -5, 0, 0, 0, 0], 1):
            job = one()
            settled = engine.run(engine.nack([job.seq], NODE, delay_ms=delay_ms))
            assert settled.released[numbers[0]] == ("ready", None, delivery)
        row = LiveJob.objects.get(pk=job.seq)
        assert (row.node, row.claim, row.deadline, row.available_at) == (None, None, None, None)
        event = last_event(job.seq)
        assert (event.get_kind_display(), event.node, event.claim, event.deliveries) == ("released", NODE, job.token, 6)
        again = claim(3, node=OTHER)
        assert seqs(again) == numbers
        assert [job.deliveries for job in again] == [7, 1, 1]
        assert again[0].errors == []

    @pytest.mark.parametrize(("asked", "given"), [(1, 1), (500, 500), (10**12, 86_400_000)])
    def test_a_delay_hides_the_job_until_it_has_passed(self, clock, asked: int, given: int) -> None:
        later = put(2)[1]
        job = one()
        settled = engine.run(engine.nack([job.seq], NODE, delay_ms=asked))
        due = clock.now + timedelta(milliseconds=given)
        assert (settled.released[job.seq], counts()["ready"], counts()["leased"]) == (("delayed", due, 1), 1, 0)
        assert last_event(job.seq).detail["available_at"].startswith(due.isoformat()[:19])
        clock.now = due - timedelta(microseconds=1)
        assert one(node=OTHER).seq == later
        engine.run(engine.nack([later], OTHER))
        clock.now = due
        assert counts()["ready"] == 2
        again = claim(2, node=OTHER)
        assert (seqs(again), again[0].deliveries) == ([job.seq, later], 2), "it kept its place"


def test_a_released_an_expired_and_a_due_job_go_to_the_back_of_their_priority(clock, queue: int) -> None:
    engine.run(engine.configure("work", requeue="back"))
    (scheduled,) = enqueue(NewJob(priority=5, delay_ms=31_000))
    low = enqueue(NewJob(priority=0))[0].seq
    first, second, third, fourth = put(4, priority=5)
    assert seqs(claim(2)) == [first, second]
    assert one().seq == third
    engine.run(engine.nack([first], NODE))
    engine.run(engine.nack([third], NODE, delay_ms=1_000))
    assert [one(lease_ms=600_000).seq, one(lease_ms=600_000).seq] == [fourth, first]
    clock.advance(seconds=31)
    assert seqs(claim(9)) == [second, third, scheduled.seq, low]


class TestExtend:
    def test_sets_the_deadline_from_now_and_nothing_else(self, clock, job: LeasedJob) -> None:
        for _ in range(3):
            clock.advance(seconds=20)
            settled = engine.run(engine.extend([job.seq], NODE, 30_000, tokens=[job.token]))
            assert settled.deadlines == {job.seq: clock.now + timedelta(seconds=30)}
        row = LiveJob.objects.get()
        assert (row.deadline, row.deliveries) == (clock.now + timedelta(seconds=30), 1)
        assert (row.claim, row.node) == (job.token, NODE)
        event = last_event(job.seq)
        assert (event.get_kind_display(), event.claim, event.deadline) == ("extended", job.token, row.deadline)

    def test_without_a_length_takes_the_queues_own(self, clock) -> None:
        make("slow", lease_ms=90_000)
        put()
        put(queue="slow")
        jobs = claim(2, ["work", "slow"], lease_ms=1_000)
        settled = engine.run(engine.extend(seqs(jobs), NODE))
        lengths = [settled.deadlines[job.seq] - clock.now for job in jobs]
        assert lengths == [timedelta(seconds=30), timedelta(seconds=90)]

    def test_part_of_a_batch_longer_then_shorter(self, clock) -> None:
        numbers = put(4)
        claim(4)
        engine.run(engine.extend(numbers[2:], NODE, 600_000))
        clock.advance(seconds=30, microseconds=1)
        assert seqs(claim(9, node=OTHER)) == numbers[:2]
        engine.run(engine.extend(numbers[2:3], NODE, 5_000))
        clock.advance(seconds=5)
        assert claim(9, node="third") == []
        clock.advance(microseconds=1)
        assert seqs(claim(9, node="third")) == numbers[2:3]
        clock.advance(seconds=600)
        assert seqs(claim(9, node="fourth")) == numbers


@pytest.mark.django_db(transaction=True)
def test_jobs_of_one_claim_are_extended_at_the_same_moment() -> None:
    helpers.put(3)
    jobs = claim(3)
    first, second = (engine.extend([job.seq], NODE, 60_000, tokens=[job.token]) for job in jobs[:2])
    with helpers.open_transaction() as other:
        other.run(first)
        with helpers.kept_waiting(lambda own: own.run(second)) as answer:
            other.connection.commit()
            assert outcomes(answer.result()) == ["ok"]
    assert sorted(row.seqs for row in Claim.objects.all()) == [[seq] for seq in seqs(jobs)]


class TestRelease:
    def test_each_job_has_its_own_delay_and_failure(self, clock) -> None:
        numbers = put(3)
        jobs = claim(3)
        back = [
            Release(numbers[0], jobs[0].token, 1_000, Failure("app.Slow", "try later", "Trace...", "slow")),
            Release(numbers[1], jobs[1].token, 0),
            Release(numbers[2], jobs[2].token + 1, 0),
        ]
        settled = engine.run(engine.release(back, NODE))
        assert outcomes(settled) == ["ok", "ok", "stale_token"]
        assert settled.released[numbers[0]] == ("delayed", clock.now + timedelta(seconds=1), 1)
        assert settled.released[numbers[1]] == ("ready", None, 1)
        failed, plain = LiveJob.objects.get(pk=numbers[0]), LiveJob.objects.get(pk=numbers[1])
        assert (failed.error_type, failed.error, failed.fingerprint) == ("app.Slow", "try later", "slow")
        told = {"type": "app.Slow", "message": "try later", "traceback": "Trace..."}
        assert errors_of(failed.pk) == [{"at": clock.now.isoformat(), "node": NODE, "deliveries": 1, **told}]
        assert (plain.error_type, errors_of(plain.pk)) == (None, None)
        detail = last_event(numbers[0]).detail
        assert (detail["error_type"], detail["fingerprint"]) == ("app.Slow", "slow")

    def test_errors_are_kept_over_the_tries_and_cut_to_the_last_twenty(self, clock) -> None:
        put()
        for number in range(25):
            clock.advance(seconds=1)
            job = one()
            assert len(job.errors) == min(number, 20)
            engine.run(engine.release([Release(job.seq, job.token, 0, Failure("E", str(number)))], NODE))
        clock.advance(seconds=1)
        assert [error["message"] for error in one().errors] == [str(number) for number in range(5, 25)]

    def test_unstarted_deliveries_do_not_count(self) -> None:
        make("strict", max_deliveries=1, exhaust_at="release", dead_letter="self")
        put(queue="strict")
        for _ in range(3):
            job = one("strict")
            assert job.deliveries == 1
            settled = engine.run(engine.release([Release(job.seq, job.token, 0)], NODE, unstarted=True))
            assert settled.released[job.seq].state == "ready"
        assert last_event(job.seq).detail == {"unstarted": True}

    @pytest.mark.parametrize(("unstarted", "left"), [(True, 0), (False, 1)])
    def test_what_has_not_started_expires_when_it_would_have(self, clock, unstarted: bool, left: int) -> None:
        enqueue(NewJob(ttl_ms=1_000))
        job = one()
        engine.run(engine.release([Release(job.seq, job.token, 0)], NODE, unstarted=unstarted))
        clock.advance(seconds=2)
        assert len(claim()) == left


class TestFinish:
    def test_results_bodies_and_failures_side_by_side(self, clock) -> None:
        make("kept", result_ttl_ms=60_000)
        numbers = put(4, "kept")
        jobs = claim(4, "kept")
        endings = [
            Ending(numbers[3], jobs[3].token, failure=Failure("app.Broken", "no", "Trace", "fp")),
            Ending(numbers[0], jobs[0].token, result={"n": 1}),
            Ending(numbers[1], jobs[1].token, result_json='{"raw": [1]}', body=b"\x00bytes"),
            Ending(numbers[2], jobs[2].token, result="overwritten"),
            Ending(numbers[2], jobs[2].token),
        ]
        settled = engine.run(engine.finish(endings, NODE))
        assert list(settled.outcomes) == [numbers[3], *numbers[:3]]
        kept = {result.seq: result for result in JobResult.objects.all()}
        assert [kept[number].get_state_display() for number in numbers] == ["completed"] * 3 + ["failed"]
        results = [kept[number].result for number in numbers]
        assert results == [{"n": 1}, {"raw": [1]}, None, None], "the last word on a job that is named twice counts"
        assert bytes(kept[numbers[1]].result_body) == b"\x00bytes"
        failed = kept[numbers[3]]
        assert (failed.error_type, failed.error, failed.fingerprint) == ("app.Broken", "no", "fp")
        assert (errors_of(failed.pk)[0]["traceback"], kinds(numbers[3])[-1]) == ("Trace", "failed")
        assert last_event(numbers[3]).detail == {"error_type": "app.Broken", "fingerprint": "fp"}
        assert kinds(numbers[0])[-1] == "acked"

    def test_the_record_holds_what_is_known_of_the_job(self, clock) -> None:
        make("kept", result_ttl_ms=60_000, priority_order="asc")
        enqueue(NewJob(data=[1], key="k", name="app.task", tag="t", meta={"m": 1}, body=b"b", priority=2), queue="kept")
        job = one("kept")
        clock.advance(seconds=1)
        engine.run(engine.release([Release(job.seq, job.token, 0, Failure("First"))], NODE))
        job = one("kept", OTHER)
        clock.advance(seconds=1)
        engine.run(engine.finish([Ending(job.seq, job.token, result="done")], OTHER))
        result = JobResult.objects.get()
        kept = StoredJob.objects.get(pk=result.seq)
        assert (kept.seq, kept.key, kept.name, kept.tag, kept.data) == (job.seq, "k", "app.task", "t", [1])
        assert (kept.meta, bytes(kept.body), kept.rank, result.node) == ({"m": 1}, b"b", 2, OTHER)
        assert (result.claim, result.deliveries) == (job.token, 2)
        assert (kept.created_at, kept.first_claimed_at) == (job.created_at, job.created_at)
        assert (result.claimed_at, result.finished_at) == (job.claimed_at, clock.now)
        assert result.expires_at == clock.now + timedelta(seconds=60)
        assert [error["type"] for error in errors_of(job.seq)] == ["First"]

    @pytest.mark.parametrize(("queue_ttl", "job_ttl", "call_ttl", "kept_ms"), [
        (0, None, None, 0), (0, 500, None, 500), (9_000, 500, None, 500), (9_000, 500, 70, 70), (9_000, 500, 0, 0),
    ])  # fmt: skip
    def test_how_long_a_result_is_kept(self, clock, queue_ttl: int, job_ttl: int, call_ttl: int, kept_ms: int) -> None:
        make("kept", result_ttl_ms=queue_ttl)
        enqueue(NewJob(result_ttl_ms=job_ttl), queue="kept")
        engine.run(engine.finish([Ending(one("kept").seq, result_ttl_ms=call_ttl, result=1)], NODE))
        if kept_ms:
            assert JobResult.objects.get().expires_at == clock.now + timedelta(milliseconds=kept_ms)
        else:
            assert not JobResult.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_renewal_that_does_not_wait_leaves_out_claims_that_are_being_settled() -> None:
    make("work")
    put(3)
    jobs = claim(2) + claim(1)
    first, second, third = seqs(jobs)
    renewal = engine.extend(seqs(jobs), NODE, 60_000, tokens=[job.token for job in jobs], waits=False)
    with helpers.own_connection() as executor, executor.connection.transaction():
        executor.run(engine.ack([first], NODE, tokens=[jobs[0].token]))
        settled = engine.run(renewal)
        assert (outcomes(settled), set(settled.deadlines)) == (["ok"] * 3, {third})
    settled = engine.run(renewal)
    assert (outcomes(settled), set(settled.deadlines)) == (["not_found", "ok", "ok"], {second, third})

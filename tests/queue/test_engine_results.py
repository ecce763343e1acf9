"""What the engine knows of a job from outside: status, result, its time to live; who is told of its end."""

from typing import Any

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Outcome, Release, clock
from django_leasequeue.engine.jobs import results
from django_leasequeue.engine.leases import sweep
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import StoredJob
from tests.engine.helpers import NODE, kept_waiting, one, open_transaction, read_result

pytestmark = pytest.mark.django_db

BOOM = Failure("builtins.ValueError", "boom")


def make(name: str = "work", **options: Any) -> None:
    engine.run(engine.create(name, **{"preset": "jobqueue", **options}))


def put(key: str | None = "a", queue: str = "work", **fields: Any) -> engine.Enqueued:
    return engine.run(engine.enqueue(queue, [NewJob(key=key, **fields)]))[0]


def held(**options: Any) -> engine.LeasedJob:
    make(**options)
    put()
    return one()


def status(key: str = "a", queue: str = "work", inline: int | None = None) -> results.Status | None:
    found = engine.run(results.status(queue, keys=[key], inline=inline))
    return found[0] if found else None


def state(key: str = "a") -> str | None:
    found = status(key)
    return None if found is None else found.state


def fail(job: engine.LeasedJob, failure: Failure | None = BOOM) -> str:
    settled = engine.run(engine.release([Release(job.seq, job.token, 0, failure)], NODE))
    return settled.released[job.seq].state


def finish(job: engine.LeasedJob, **end: Any) -> None:
    engine.run(engine.finish([Ending(job.seq, job.token, **end)], NODE))


def lasts(clock: clock.Clock, found: str, seconds: int) -> None:
    clock.advance(seconds=seconds - 0.001)
    assert state() == found
    clock.advance(seconds=0.001)
    assert state() is None


class TestStatus:
    def test_a_stalled_job_and_one_given_back_without_an_error_are_queued(self, clock: clock.Clock) -> None:
        held()
        clock.advance(seconds=31)
        engine.run(engine.sweep([engine.run(engine.get("work")).id]))  # type: ignore[union-attr]  # it is there
        assert state() == "queued"
        fail(one(), None)
        assert state() == "queued"

    def test_a_key_stands_for_the_last_job_that_has_it(self) -> None:
        make(dedup_until="terminal")
        first = put()
        finish(one())
        second = put()
        found = engine.run(results.status("work", keys=["a"]))
        assert [line.seq for line in found] == [second.seq]
        found = engine.run(results.status("work", keys=["a"], seqs=[first.seq]))
        assert [(line.seq, line.state) for line in found] == [(second.seq, "queued"), (first.seq, "completed")]

    def test_a_key_is_unknown_from_the_claim_on_where_the_queue_says_so(self) -> None:
        make(dedup_until="claimed")
        seq = put().seq
        assert state() == "queued"
        job = one()
        assert state() is None
        engine.run(engine.nack([seq], NODE, delay_ms=60_000))
        assert state() is None
        assert engine.run(results.update_result_ttl("work", 1_000, key="a")) is None
        (found,) = engine.run(results.status("work", seqs=[job.seq]))
        assert found.state == "queued"
        again = put()
        assert (again.seq != seq, state()) == (True, "queued")

    def test_a_large_result_stays_behind_until_it_is_asked_for(self) -> None:
        make()
        put()
        body = bytes(range(256)) * 12_000  # three slices
        finish(one(), result="x" * 300_000, body=body)
        found = status(inline=1_000)
        assert found.left_behind
        assert (found.result_json, found.result_body, found.body_size) == (None, None, len(body))
        whole = engine.run(read_result("work", keys=["a"]))
        assert (len(whole.result_json), whole.result_body) == (300_002, body)


class TestTimeToLive:
    def test_of_a_result_counts_from_the_change(self, clock: clock.Clock) -> None:
        job = held()
        finish(job)
        clock.advance(minutes=30)
        assert engine.run(results.update_result_ttl("work", 1_000, key="a")) == (job.seq, True)
        lasts(clock, "completed", 1)
        assert engine.run(results.update_result_ttl("work", 1_000, key="a")) is None

    def test_of_a_live_job_counts_from_its_end(self, clock: clock.Clock) -> None:
        make()
        seq = put().seq
        assert engine.run(results.update_result_ttl("work", 1_000, seq=seq)) == (seq, False)
        clock.advance(minutes=30)
        finish(one())
        lasts(clock, "completed", 1)

    @pytest.mark.parametrize("expires", [False, True], ids=["fails", "last lease expires"])
    def test_of_the_job_counts_for_its_death_as_well(self, clock: clock.Clock, expires: bool) -> None:
        make(max_deliveries=1)
        put(result_ttl_ms=1_000)
        job = one()
        if expires:
            clock.advance(seconds=31)
            assert engine.run(engine.claim("work", NODE)) == []
        else:
            assert fail(job) == "dead"
        lasts(clock, "failed", 1)
        assert put().status == "queued"

    def test_of_the_job_does_not_end_a_dead_letter_that_is_kept(self, clock: clock.Clock) -> None:
        make(max_deliveries=1, dead_ttl_ms=0)
        put(result_ttl_ms=1_000)
        assert fail(one()) == "dead"
        clock.advance(days=400)
        assert state() == "failed"


class TestProgress:
    def test_is_kept_over_retries_and_with_the_result(self) -> None:
        job = held()
        settled = engine.run(results.progress([results.Progress(job.seq, job.token, {"done": 1})], NODE))
        assert settled.outcomes == {job.seq: Outcome.OK}
        assert status().progress == {"done": 1}  # type: ignore[union-attr]  # it is there
        fail(job)
        again = one()
        assert again.progress == {"done": 1}
        engine.run(engine.finish([Ending(again.seq, again.token)], NODE))
        assert status().progress == {"done": 1}  # type: ignore[union-attr]  # it is there

    def test_of_another_holder_is_refused(self) -> None:
        job = held()
        other = engine.run(results.progress([results.Progress(job.seq, job.token, 1)], "somebody"))
        stale_token = engine.run(results.progress([results.Progress(job.seq, job.token + 1, 1)], NODE))
        assert [*other.outcomes.values(), *stale_token.outcomes.values()] == [Outcome.NOT_HELD, Outcome.STALE_TOKEN]
        assert status().progress is None  # type: ignore[union-attr]  # it is there


class TestReplies:
    def test_channels_join_once_each_some_of_them_and_before_the_end(self) -> None:
        make()
        seq = put(reply_to="one").seq
        assert engine.run(results.join(seq, "two")) is True
        assert engine.run(results.join(seq, "one")) is True
        assert StoredJob.objects.get(pk=seq).reply_to == "one two"
        seq = put("b").seq
        answers = [engine.run(results.join(seq, f"{number:060d}")) for number in range(100)]
        assert (answers.count(True), answers[-1]) == (68, False)
        engine.run(engine.cancel("work", seqs=[seq]))
        assert engine.run(results.join(seq, "one")) is None

    @pytest.mark.parametrize("place", ["ready", "delayed", "leased", "given back"])
    def test_the_end_is_told_to_who_joined_wherever_the_job_stood(self, place: str, clock: clock.Clock) -> None:
        make(result_ttl_ms=0)
        seq = engine.run(engine.enqueue("work", [NewJob(delay_ms=1_000 if place == "delayed" else None)]))[0].seq
        if place in ("leased", "given back"):
            job = one()
        if place == "given back":
            engine.run(engine.nack([seq], NODE))
        assert engine.run(results.join(seq, "one")) is True
        clock.advance(seconds=1)
        if place != "leased":
            job = one()
        engine.run(engine.finish([Ending(seq, job.token, result=1)], NODE))
        (found,) = engine.run(results.status("work", seqs=[seq], inline=100))
        assert (found.state, found.result_json) == ("completed", "1"), "kept for a minute, for who waits"

    def test_which_have_ended(self) -> None:
        make(max_deliveries=1)
        live, done, dead, gone = (put(key).seq for key in ("live", "done", "dead", "gone"))
        engine.run(engine.cancel("work", seqs=[gone]))
        jobs = {job.seq: job for job in engine.run(engine.claim("work", NODE, 3))}
        engine.run(engine.finish([Ending(done, jobs[done].token)], NODE))
        fail(jobs[dead])
        assert sorted(engine.run(results.ended([live, done, dead, gone]))) == [done, dead, gone]

    def test_a_result_that_somebody_waits_for_is_kept_for_a_minute(self, clock: clock.Clock) -> None:
        make(result_ttl_ms=0, dedup_until="terminal")
        put(reply_to="one")
        finish(one(), result=1)
        lasts(clock, "completed", 60)
        with pytest.raises(InvalidOption, match="without spaces"):
            put(reply_to="a b")


class TestStale:
    def test_leases_without_renewal_come_back(self, clock: clock.Clock) -> None:
        make(lease_ms=300_000, max_deliveries=0)
        put("quiet")
        put("busy")
        put("fresh")
        quiet, busy = one(), one()
        clock.advance(seconds=100)
        engine.run(engine.extend([busy.seq], NODE, tokens=[busy.token]))
        one()
        clock.advance(seconds=20)
        assert engine.run(sweep.requeue_stale("work", 60_000)) == 1
        assert (state("quiet"), state("busy"), state("fresh")) == ("queued", "processing", "processing")
        late = engine.run(engine.ack([quiet.seq], NODE, tokens=[quiet.token]))
        assert late.outcomes[quiet.seq] is Outcome.NOT_HELD

    def test_expired_leases_count(self, clock: clock.Clock) -> None:
        held()
        clock.advance(seconds=31)
        assert engine.run(sweep.requeue_stale("work", 86_400_000)) == 1


# What two connections do to one job at the same moment


def leased_beside(unusual: bool, queue: str) -> tuple[engine.LeasedJob, Any]:
    """Claim a new job; return it with the operation that ends it: an unusual one by the statement that looks at it."""
    engine.run(engine.enqueue(queue, [engine.NewJob(**({"result_ttl_ms": 2_000} if unusual else {}))]))
    (job,) = engine.run(engine.claim(queue, "worker"))
    return job, engine.finish([engine.Ending(job.seq, job.token)], "worker")


def meet(one: Any, other: Any) -> Any:
    """Do one thing, and beside it another that waits for the end of its transaction; return what that got."""
    with open_transaction() as first:
        first.run(one)
        with kept_waiting(lambda own: own.run(other)) as answer:
            first.connection.commit()
        return answer.result()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("unusual", [False, True])
def test_who_joins_while_the_job_ends_is_told_or_too_late(test_dsn: str, unusual: bool) -> None:
    """An ending that waits for the lock of a join tells its channel; a join that waits for an ending finds nothing."""
    engine.run(engine.create("joined", preset="jobqueue", result_ttl_ms=0))
    with psycopg.connect(test_dsn, autocommit=True) as listener:
        listener.execute("LISTEN late")
        job, ending = leased_beside(unusual, "joined")
        assert meet(results.join(job.seq, "late"), ending).ok == [job.seq]
        [told] = listener.notifies(timeout=60, stop_after=1)
    assert told.payload.split(":")[0] == str(job.seq)
    assert [found.state for found in engine.run(results.status("joined", seqs=[job.seq]))] == ["completed"]
    job, ending = leased_beside(unusual, "joined")
    assert meet(ending, results.join(job.seq, "late")) is None


@pytest.mark.django_db(transaction=True)
def test_a_ttl_that_is_set_while_the_job_ends_counts() -> None:
    engine.run(engine.create("kept", preset="jobqueue", result_ttl_ms=1_000))
    for sets in (True, False):
        job, ending = leased_beside(True, "kept")
        setting = results.update_result_ttl("kept", 3_600_000, seq=job.seq)
        answer = meet(*((setting, ending) if sets else (ending, setting)))
        assert answer.ok == [job.seq] if sets else answer == (job.seq, True)
        (found,) = engine.run(results.status("kept", seqs=[job.seq]))
        assert (found.expires_at - found.finished_at).total_seconds() > 3_000

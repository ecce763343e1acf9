"""The check of the tables against the lease log: silent when all is right, and each difference is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pgtrigger
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, Release
from django_leasequeue.engine.operation import Rows
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.verify import MEANINGS, Verification, snapshot, verify
from django_leasequeue.models import Claim, Job, JobResult, LeaseEvent, Queue, QueueFloor

from .helpers import NODE, OTHER, claim, make, one, open_transaction, put


@pytest.fixture(autouse=True)
def _queue(transactional_db: None, clock) -> None:
    """Real commits: the check has a connection of its own."""
    make("work", result_ttl_ms=60_000)


def check(**options: Any) -> Verification:
    with connect("default") as own, snapshot(own) as executor:
        return executor.run(verify(**options))


def found() -> list[tuple[str, int]]:
    return [(item.difference, item.seq) for item in check().differences]


def change(seq: int, **fields: Any) -> None:
    """Change a job behind the engine's back."""
    with pgtrigger.ignore("leasequeue.Job:state_moves"):
        Job.objects.filter(pk=seq).update(**fields)


def everything_that_happens_to_jobs(clock) -> None:
    make("mortal", max_deliveries=1, exhaust_at="release", dead_letter="self", requeue="back")
    make("moving", max_deliveries=1, exhaust_at="claim", dead_letter="letters")
    make("quiet", log_enqueued=False)
    put(12)
    put(3, delay_ms=60_000)
    put(2, ttl_ms=5_000)
    put(2, queue="quiet")
    jobs = claim(8)
    engine.run(engine.ack([job.seq for job in jobs[:2]], NODE))
    engine.run(engine.finish([Ending(jobs[2].seq, failure=Failure("E"))], NODE))
    engine.run(engine.nack([jobs[3].seq], NODE))
    engine.run(engine.nack([jobs[4].seq], NODE, delay_ms=5_000))
    engine.run(engine.extend([jobs[5].seq], NODE, lease_ms=90_000))
    engine.run(engine.cancel("work", seqs=put(1)))
    for queue in ("mortal", "moving"):
        put(3, queue=queue)
        engine.run(engine.release([Release(job.seq, delay_ms=0) for job in claim(3, queue=queue)], NODE))
    claim(1, queue="moving")
    engine.run(engine.redrive("mortal", [Job.objects.filter(queue__name="mortal").earliest("seq").seq]))
    engine.run(engine.redrive_home("letters", [Job.objects.filter(queue__name="letters").earliest("seq").seq]))
    claim(1, queue="quiet", node=OTHER)
    clock.advance(seconds=40)
    claim(3)
    engine.run(engine.purge("work", states=["delayed"]))


def test_nothing_is_wrong_after_everything_that_can_happen(clock) -> None:
    everything_that_happens_to_jobs(clock)
    outcome = check()
    assert outcome.differences == []
    assert (outcome.total, outcome.unknown) == (0, 0)
    assert outcome.leases == Job.objects.filter(state=2).count() > 3
    assert outcome.jobs_with_events > 20


def test_a_lease_that_the_log_does_not_know() -> None:
    seqs = put(2)
    job = one()
    change(seqs[1], state=2, node="x", claim=job.claim, deadline=job.deadline, claimed_at=job.claimed_at)
    outcome = check()
    assert [item[0] for item in outcome.differences if item.seq == seqs[1]] == [
        "other_place",
        "not_in_claim",
        "claim_of_another",
    ][:2]
    first = outcome.differences[0]
    assert (first.queue, first.project, first.expected["place"], first.found["place"]) == (
        "work",
        "",
        "waiting",
        "leased",
    )


def test_a_lease_without_any_event() -> None:
    make("quiet", log_enqueued=False)
    (seq,) = put(1, queue="quiet")
    job = one("quiet")
    with pgtrigger.ignore("leasequeue.LeaseEvent:append_only"):
        LeaseEvent.objects.filter(seq=seq).delete()
        put(1)
    Job.objects.filter(pk=seq).update(claimed_at=job.claimed_at)
    assert found() == [("lease_without_event", seq)]


def test_leases_older_than_the_log_are_unknown(clock) -> None:
    put(1)
    one(lease_ms=3_600_000)
    clock.advance(seconds=60)
    put(1)
    outcome = check(since=clock.now)
    assert (outcome.total, outcome.unknown, outcome.jobs_with_events, outcome.leases) == (0, 1, 1, 1)
    assert check().unknown == 0


def test_jobs_that_vanished() -> None:
    seqs = put(3)
    claim(1)
    Job.objects.filter(pk__in=seqs[:2]).delete()
    assert found() == [("lease_without_job", seqs[0]), ("lost_job", seqs[1])]


def test_a_job_that_came_back_from_the_dead() -> None:
    (seq,) = put(1)
    job = one()
    before = Job.objects.get(pk=seq)
    engine.run(engine.ack([seq], NODE))
    before.state, before.node, before.claim, before.deadline = 0, None, None, None
    before.save(force_insert=True)
    assert found() == [("ended_job", seq), ("live_and_ended", seq)]
    assert job.seq == seq


@pytest.mark.parametrize(
    "fields", [{"node": "thief"}, {"claim": 10**9}, {"deliveries": 7}, {"deadline": "2030-01-01T13:00:00Z"}]
)
def test_another_holder_than_the_log_says(fields) -> None:
    (seq,) = put(1)
    one()
    change(seq, **fields)
    assert ("other_holder", seq) in found()


def test_leases_that_the_sweep_would_not_find() -> None:
    seqs = put(4)
    jobs = [one() for _ in range(4)]
    Claim.objects.filter(pk=jobs[0].claim).delete()
    Claim.objects.filter(pk=jobs[1].claim).update(seqs=[])
    Claim.objects.filter(pk=jobs[2].claim).update(deadline="2031-01-01T00:00:00Z")
    Claim.objects.filter(pk=jobs[3].claim).update(node="x")
    assert found() == [
        ("lease_without_claim", seqs[0]),
        ("not_in_claim", seqs[1]),
        ("claim_too_late", seqs[2]),
        ("claim_of_another", seqs[3]),
    ]


def test_floors_that_hide_jobs() -> None:
    ready = put(2)
    (delayed,) = put(1, delay_ms=1_000)
    put(1, queue="work", priority=5)
    leased = one()
    QueueFloor.objects.filter(kind=0, rank=0).update(value=ready[1])
    QueueFloor.objects.filter(kind=1).update(value=2**60)
    QueueFloor.objects.filter(kind=2).update(value=2**60)
    outcome = check()
    assert [(item.difference, item.seq) for item in outcome.differences] == [
        ("below_floor", ready[0]),
        ("below_floor", delayed),
        ("below_floor", leased.seq),
    ]
    assert outcome.differences[0].expected == {"kind": "ready", "rank": 0, "value": ready[1]}
    assert outcome.differences[0].found == {"jobs": 1, "lowest": ready[0]}
    QueueFloor.objects.all().delete()
    assert {item.difference for item in check().differences} == {"no_floor"}


def test_impossible_jobs() -> None:
    make("log", type="log")
    seqs = put(3)
    (record,) = put(1, queue="log")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE leasequeue_job DROP CONSTRAINT leasequeue_job_delay_complete")
    try:
        change(seqs[0], state=1, available_at=None)
        change(seqs[1], queue_id=10**9)
        change(record, state=0)
        kinds = {(item.difference, item.seq): item for item in check().differences}
        assert {("delayed_without_time", seqs[0]), ("no_queue", seqs[1]), ("wrong_type", record)} <= set(kinds)
        assert kinds["no_queue", seqs[1]].queue is None
    finally:
        Job.objects.all().delete()
        with connection.cursor() as cursor:
            cursor.execute(
                "ALTER TABLE leasequeue_job ADD CONSTRAINT leasequeue_job_delay_complete"
                " CHECK (NOT (state = 1) OR available_at IS NOT NULL)"
            )


def test_the_order_of_events_is_that_of_the_row_lock_not_of_the_transaction_number() -> None:
    """A transaction that got its number early claims a job that a later one released."""
    (seq,) = put(1)
    one()
    with open_transaction() as early:
        early.run(engine.enqueue("work", [engine.NewJob(priority=9)]))
        engine.run(engine.nack([seq], NODE))
        (job,) = [job for job in early.run(engine.claim("work", OTHER, 2)) if job.seq == seq]
        early.connection.commit()
    events = list(LeaseEvent.objects.filter(seq=seq).order_by("id").values_list("kind", "txid"))
    assert events[-1][1] < events[-2][1]
    assert job.deliveries == 2
    assert found() == []


def test_events_of_deleted_queues_are_no_differences() -> None:
    put(3)
    claim(1)
    engine.run(engine.delete("work"))
    assert found() == []


def test_differences_are_counted_beyond_the_limit() -> None:
    put(5)
    Job.objects.all().delete()
    outcome = check(size=2)
    assert (outcome.total, len(outcome.differences)) == (5, 2)


def while_the_world_goes_on(fetch: Callable[..., Rows]) -> Callable[..., Rows]:
    def fetch_and_work(name: str, params: Any) -> Rows:
        answer = fetch(name, params)
        for job in claim(1):
            engine.run(engine.ack([job.seq], NODE))
        return answer

    return fetch_and_work


def test_the_check_sees_one_instant_and_changes_nothing() -> None:
    put(2)
    with connect("default") as own, snapshot(own) as executor:
        executor.fetch = while_the_world_goes_on(executor.fetch)
        assert executor.run(verify()).total == 0
        assert Job.objects.count() == 0
        with pytest.raises(Exception, match="read-only"):
            executor.run(engine.sweep([Queue.objects.get().pk]))


def test_every_difference_has_a_meaning() -> None:
    assert all(MEANINGS.values())
    (seq,) = put(1)
    JobResult.objects.all().delete()
    Job.objects.all().delete()
    assert check().differences[0].meaning == MEANINGS["lost_job"]
    assert seq


def command(*arguments: str) -> tuple[str, str | None]:
    """Run the command; return its output and its error."""
    out = StringIO()
    failure: CommandError | None = None
    try:
        call_command("leasequeue_verify", *arguments, stdout=out)
    except CommandError as error:
        failure = error
    assert failure is None or failure.returncode == 1
    return out.getvalue(), failure and str(failure)


def test_the_command_is_content(clock) -> None:
    everything_that_happens_to_jobs(clock)
    text, error = command()
    assert error is None
    assert "0 differences" in text


def test_the_command_prints_differences_and_fails() -> None:
    (seq,) = put(1)
    Job.objects.all().delete()
    text, error = command()
    assert error == "1 differences between the lease log and the tables"
    assert f"lost_job: job {seq} of /work: the log says that the job waits" in text
    text, error = command("--json")
    assert error is not None
    answer = json.loads(text)
    assert (answer["total"], answer["differences"][0]["difference"]) == (1, "lost_job")


def test_the_command_looks_back_as_far_as_it_is_told(clock) -> None:
    put(1)
    clock.advance(hours=2)
    put(1)
    Job.objects.all().delete()
    assert command("--since", "1h")[1] == "1 differences between the lease log and the tables"
    assert command("--since", "3h")[1] == "2 differences between the lease log and the tables"
    assert command("--since", clock.now.isoformat())[1] == "1 differences between the lease log and the tables"
    for wrong in ("soon", "2026-13-45T00:00"):
        assert "must be an age like 24h" in (command("--since", wrong)[1] or "")
    assert "--limit" in (command("--limit", "0")[1] or "")

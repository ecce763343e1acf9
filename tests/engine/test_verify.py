"""The check of the tables against the lease log: silent when all is right, and each difference is told."""

import json
from typing import Any

import pgtrigger
import pytest

from django_leasequeue import engine, models
from django_leasequeue.engine import Ending, Failure, Release
from django_leasequeue.engine.operation import Rows
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.verify import MEANINGS, Verification, snapshot, verify
from django_leasequeue.models import Claim, DeadLetter, Delayed, LiveJob, Queue, QueueFloor, Ready, Record, StoredJob
from tests.engine.helpers import NODE, OTHER, claim, make, one, open_transaction, put
from tests.support.commands import tried
from tests.support.rows import rows


@pytest.fixture(autouse=True)
def _queue(transactional_db: None, clock) -> None:
    """Real commits: the check has a connection of its own."""
    make("work", result_ttl_ms=60_000)


def check(**options: Any) -> Verification:
    with connect("default") as own, snapshot(own) as executor:
        return executor.run(verify(**options))


def found() -> list[tuple[str, int]]:
    return [(item.difference, item.seq) for item in check().differences]


def unstore(*seqs: int) -> None:
    with pgtrigger.ignore("leasequeue.StoredJob:removed_by_engine"):
        rows(StoredJob).filter(seq__in=seqs).delete()


def vanish(*seqs: int) -> None:
    for model in (Ready, Delayed, DeadLetter, Record):
        rows(model).filter(seq__in=seqs).delete()
    unstore(*seqs)
    rows(Claim).filter(seqs__overlap=list(seqs)).delete()


def test_nothing_is_wrong_after_everything_that_can_happen(clock) -> None:
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
    engine.run(engine.redrive("mortal", [LiveJob.objects.filter(queue__name="mortal", state=3).earliest("seq").seq]))
    letter = StoredJob.objects.filter(queue__name="letters").earliest("seq").seq
    engine.run(engine.redrive("letters", [letter], to="moving"))
    claim(1, queue="quiet", node=OTHER)
    clock.advance(seconds=40)
    claim(3)
    engine.run(engine.purge("work", states=["delayed"]))
    outcome = check()
    assert (outcome.differences, outcome.total, outcome.unknown) == ([], 0, 0)
    assert outcome.leases == LiveJob.objects.filter(state=2).count() > 3
    assert outcome.jobs_with_events > 20
    text, error = command()
    assert (error, "0 differences" in text) == (None, True)
    engine.run(engine.delete("work"))
    assert found() == [], "events of deleted queues are no differences"


def test_a_lease_without_any_event_and_those_older_than_the_log_which_are_unknown(clock) -> None:
    make("quiet", log_enqueued=False)
    put(1)
    (seq,) = put(1, queue="quiet")
    one("quiet", lease_ms=3_600_000)
    clock.advance(seconds=60)
    put(1)
    outcome = check(since=clock.now)
    assert (outcome.total, outcome.unknown, outcome.jobs_with_events, outcome.leases) == (0, 1, 1, 1)
    assert check().unknown == 0
    with pgtrigger.ignore("leasequeue.LeaseEvent:append_only"):
        rows(models.LeaseEvent).filter(seqs__contains=[seq]).delete()
    assert found() == [("lease_without_event", seq)]


def test_jobs_that_vanished_or_came_back_from_the_dead() -> None:
    done, leased, ready, _ = put(4)
    row = Ready.objects.get(seq=done)
    engine.run(engine.ack([one().seq], NODE))
    assert one().seq == leased
    vanish(leased, ready)
    rows(Ready).bulk_create([row])
    told = {(item.difference, item.seq): item for item in check().differences}
    gone, back = {("lease_without_job", leased), ("lost_job", ready)}, {("ended_job", done), ("two_places", done)}
    assert set(told) == gone | back
    assert told["two_places", done].found == {"place": "ready, result"}


@pytest.mark.parametrize(
    "fields", [{"node": "thief"}, {"token": 10**9}, {"deliveries": [7]}, {"deadline": "2030-01-01T13:00:00Z"}]
)
def test_another_holder_than_the_log_says(fields) -> None:
    (seq,) = put(1)
    one()
    rows(Claim).update(**fields)
    assert found() == [("other_holder", seq)]


def test_claims_that_cannot_be() -> None:
    seqs = put(6)
    jobs = [*claim(1), *claim(1), *claim(2), *claim(1), *claim(1)]
    rows(Claim).filter(token=jobs[0].token).update(seqs=[])
    rows(Claim).filter(token=jobs[1].token).update(deliveries=[1, 1])
    rows(Claim).filter(token=jobs[2].token).update(seqs=[seqs[2], seqs[3], seqs[2]])
    rows(Claim).filter(token=jobs[4].token).update(name="app.other")
    outcome = check()
    assert {(item.difference, item.seq) for item in outcome.differences} == {
        ("lease_without_job", seqs[0]), ("no_place", seqs[0]), ("empty_claim", 0), ("other_length", seqs[1]),
        ("twice_in_claim", seqs[2]), ("other_name", seqs[4]),
    }  # fmt: skip
    told = next(item for item in outcome.differences if item.difference == "other_length")
    assert (told.expected["claim"], told.found) == (jobs[1].token, {"jobs": 1, "deliveries": 2})


def test_floors_that_hide_jobs() -> None:
    ready = put(2)
    (delayed,) = put(1, delay_ms=1_000)
    (urgent, again) = put(2, queue="work", priority=5)
    leased = one()
    engine.run(engine.nack([one().seq], NODE))
    queue = Queue.objects.get(name="work")
    high = 2**60
    floors = [(0, 0, ready[1]), (0, 0, ready[0]), (0, -5, high), *((kind, 0, high) for kind in (1, 2, 3))]
    for kind, rank, value in floors:
        rows(QueueFloor).create(queue=queue, kind=kind, rank=rank, value=value, made_at=queue.created_at)
    outcome = check()
    assert [(item.difference, item.seq) for item in outcome.differences] == [
        ("below_floor", ready[0]), ("below_floor", delayed), ("below_floor", leased.seq),
    ], "jobs that were given back are not bounded by a floor"  # fmt: skip
    assert outcome.differences[0].expected == {"kind": "ready", "rank": 0, "value": ready[1]}
    assert outcome.differences[0].found == {"jobs": 1, "lowest": ready[0]}
    assert leased.seq == urgent
    rows(QueueFloor).delete()
    rows(models.QueueRank).filter(rank=-5).delete()
    assert found() == [("no_rank", again)]


def test_jobs_that_stand_nowhere_or_twice() -> None:
    seqs = put(5)
    (delayed,) = put(1, delay_ms=1_000)
    leased = one()
    rows(Ready).filter(seq=seqs[1]).delete()
    rows(Claim).update(seqs=[leased.seq, seqs[2]])
    queue = Queue.objects.get()
    rows(Ready).create(queue=queue, rank=0, lane=2, position=delayed, seq=delayed, ready_at=queue.created_at)
    unstore(seqs[3])
    wanted = ("no_place", "two_places", "place_without_job")
    jobs = {item.seq: item for item in check().differences if item.difference in wanted}
    assert {seq: (item.difference, item.found) for seq, item in jobs.items()} == {
        seqs[1]: ("no_place", {"place": "nowhere"}), seqs[2]: ("two_places", {"place": "leased, ready"}),
        seqs[3]: ("place_without_job", {"place": "ready"}), delayed: ("two_places", {"place": "delayed, ready"}),
    }  # fmt: skip


def test_places_of_another_kind_or_queue() -> None:
    queue, log = make("other"), make("log", type="log")
    seqs = put(3)
    (record,) = put(1, queue="log")
    rows(Record).create(queue_id=Queue.objects.get(name="work").pk, seq=seqs[0])
    rows(Ready).filter(seq=seqs[0]).delete()
    rows(Ready).filter(seq=seqs[1]).update(queue_id=queue)
    with pgtrigger.ignore("leasequeue.StoredJob:written_once"):
        rows(StoredJob).filter(pk=seqs[2]).update(queue_id=10**9)
    rows(Ready).filter(seq=seqs[2]).update(queue_id=10**9)
    rows(Record).filter(seq=record).delete()
    rows(Delayed).create(seq=record, queue_id=log, rank=0, available_at=Queue.objects.get(pk=log).created_at)
    told = {(item.difference, item.seq): item for item in check().differences}
    wanted = {("wrong_type", seqs[0]), ("other_queue", seqs[1]), ("no_queue", seqs[2]), ("wrong_type", record)}
    assert wanted <= set(told)
    assert told["no_queue", seqs[2]].queue is None
    wrong = told["wrong_type", record]
    assert (wrong.expected, wrong.found) == ({"type": "log"}, {"place": "delayed"})


def test_what_a_place_repeats_of_its_job() -> None:
    plain = put(5)
    (answered,) = put(1, reply_to="channel")
    (delayed,) = put(1, delay_ms=1_000, tag="a", max_deliveries=3)
    (failed,) = put(1, priority=9)
    engine.run(engine.release([Release(one().seq, failure=Failure("E"))], NODE))
    assert found() == []
    copies = ({"tag": "x"}, {"max_deliveries": 9}, {"flags": 32}, {"flags": 4}, {"rank": 1})
    for number, copy in zip(plain, copies, strict=True):
        rows(Ready).filter(seq=number).update(**copy)
    rows(Ready).filter(seq__in=[answered, failed]).update(flags=0)
    rows(Delayed).filter(seq=delayed).update(tag="b")
    rows(models.QueueRank).create(queue=Queue.objects.get(), rank=1)
    told = {item.seq: item for item in check().differences}
    assert {item.difference for item in told.values()} == {"other_copy"}
    assert set(told) == {plain[0], plain[1], plain[3], plain[4], answered, failed, delayed}, "a suspect is none"
    for number, key, expected, seen in ((answered, "flags", 1, 0), (failed, "flags", 8, 0), (delayed, "tag", "a", "b")):
        assert (told[number].expected[key], told[number].found[key]) == (expected, seen)


def test_letters_without_a_row_and_rows_without_a_letter() -> None:
    make("moving", max_deliveries=1, exhaust_at="release", dead_letter="letters")
    make("letters")
    put(2, queue="moving")
    engine.run(engine.release([Release(job.seq) for job in claim(2, queue="moving")], NODE))
    first, second = StoredJob.objects.filter(queue__name="letters").order_by("seq")
    assert found() == []
    rows(DeadLetter).filter(seq=first.seq).delete()
    rows(Ready).filter(seq=second.seq).delete()
    rows(models.Attempt).filter(seq=second.seq).delete()
    unstore(second.seq)
    assert found() == [("other_copy", first.seq), ("place_without_job", second.seq)]


def test_the_order_of_events_is_that_of_the_row_lock_not_of_the_transaction_number() -> None:
    """A transaction that got its number early claims a job that a later one released."""
    (seq,) = put(1)
    one()
    with open_transaction() as early:
        early.run(engine.enqueue("work", [engine.NewJob(priority=9)]))
        engine.run(engine.nack([seq], NODE))
        (job,) = [job for job in early.run(engine.claim("work", OTHER, 2)) if job.seq == seq]
        early.connection.commit()
    events = list(models.JobEvent.objects.filter(seq=seq).order_by("id").values_list("kind", "txid"))
    assert events[-1][1] < events[-2][1]
    assert (job.deliveries, found()) == (2, [])


def test_the_check_sees_one_instant_and_changes_nothing() -> None:
    put(2)
    with connect("default") as own, snapshot(own) as executor:
        fetch = executor.fetch

        def fetch_and_work(name: str, params: Any) -> Rows:
            answer = fetch(name, params)
            for job in claim(1):
                engine.run(engine.ack([job.seq], NODE))
            return answer

        executor.fetch = fetch_and_work
        assert executor.run(verify()).total == 0
        assert LiveJob.objects.count() == 0
        with pytest.raises(Exception, match="read-only"):
            executor.run(engine.sweep([Queue.objects.get().pk]))


def command(*arguments: str) -> tuple[str, str | None]:
    text, failure = tried("leasequeue_verify", *arguments)
    assert failure is None or failure.returncode == 1
    return text, failure and str(failure)


def test_the_command_prints_differences_and_fails() -> None:
    assert all(MEANINGS.values())
    (seq,) = put(1)
    vanish(seq)
    assert check().differences[0].meaning == MEANINGS["lost_job"]
    text, error = command()
    assert error == "1 differences between the lease log and the tables"
    assert f"lost_job: job {seq} of /work: the log says that the job waits" in text
    text, error = command("--json")
    assert error is not None
    answer = json.loads(text)
    assert (answer["total"], answer["differences"][0]["difference"]) == (1, "lost_job")
    vanish(*put(4))
    outcome = check(size=2)
    assert (outcome.total, len(outcome.differences)) == (5, 2), "counted beyond the limit"


def test_the_command_looks_back_as_far_as_it_is_told(clock) -> None:
    seqs = put(1)
    clock.advance(hours=2)
    vanish(*seqs, *put(1))
    assert command("--since", "1h")[1] == "1 differences between the lease log and the tables"
    assert command("--since", "3h")[1] == "2 differences between the lease log and the tables"
    assert command("--since", clock.now.isoformat())[1] == "1 differences between the lease log and the tables"
    for wrong in ("soon", "2026-13-45T00:00", "99999999999d"):
        assert "must be an age like 24h" in (command("--since", wrong)[1] or "")
    assert "--limit" in (command("--limit", "0")[1] or "")

"""The standard duties: what each does when its time has come, under the held clock."""

import sys
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from django_leasequeue import engine, models, signals
from django_leasequeue.engine import Ending, Failure, NewJob, Release
from django_leasequeue.engine.queues import stats
from django_leasequeue.engine.topics import topics
from django_leasequeue.models import Attempt, JobResult, LiveJob, QueueFloor, QueueRank, QueueStat, StoredJob, Worker
from django_leasequeue.reaper import DutyRun, shift
from tests.engine.helpers import NODE, claim, enqueue, kinds, make, one, open_transaction, put, run, seqs, state
from tests.plans.filling import SUM_UP
from tests.reaper.conftest import leading, tick
from tests.support.heard import connected
from tests.support.rows import rows

pytestmark = pytest.mark.usefixtures("transactional_db")


def worker(node: str, **fields: Any) -> Worker:
    return rows(Worker).create(node=node, host="h", pid=1, concurrency=1, **fields)


def short_turns(monkeypatch: pytest.MonkeyPatch, statements: int) -> None:
    """A turn is over after so many statements."""

    class Short(DutyRun):
        left = statements

        @property
        def over(self) -> bool:
            return self.left < 0

        def fetch(self, name: str, params: Any = None) -> Any:
            self.left -= 1
            return super().fetch(name, params)

    monkeypatch.setattr(shift, "DutyRun", Short)


def test_expired_leases_and_due_jobs_come_back_in_every_queue(reaper) -> None:
    for name in ("a", "b", "c"):
        make(name)
        put(3, queue=name)
        claim(2, queue=name)
    one("c", lease_ms=600_000)
    first, second = put(1, queue="a", delay_ms=29_000) + put(1, queue="b", delay_ms=600_000)
    reaper.tick()
    assert (state(first), state(second)) == ("delayed", "delayed")
    tick(reaper, seconds=29)
    assert (state(first), state(second), LiveJob.objects.filter(state=2).count()) == ("ready", "delayed", 7)
    assert "sweep" in tick(reaper, seconds=2)
    assert (LiveJob.objects.filter(state=2).count(), models.Claim.objects.count()) == (1, 1)
    tick(reaper, seconds=1)
    assert models.JobEvent.objects.filter(kind=7).count() == 6, "each lease expires once"


def test_messages_past_their_time_go_whenever_they_come(reaper, clock) -> None:
    make("work")
    (first,) = put(1, ttl_ms=3_000)
    (later,) = put(1, ttl_ms=100_000)
    reaper.tick()
    tick(reaper, seconds=4)
    assert (state(first), state(later), kinds(first)[-1]) == (None, "ready", "cancelled")
    # One that comes in behind what was looked at (its transaction was slow) is seen at the next full look.
    (slow,) = put(1, ttl_ms=1_000)
    rows(models.Ready).filter(seq=slow).update(expires_at=clock.now - timedelta(seconds=2))
    tick(reaper, seconds=2)
    assert state(slow) == "ready"
    for _ in range(2):
        tick(reaper, seconds=31)
    assert state(slow) is None
    tick(reaper, seconds=60)
    assert state(later) is None


def test_results_go_after_their_retention(reaper) -> None:
    make("kept", result_ttl_ms=60_000)
    numbers = put(3, queue="kept")
    for job in claim(3, queue="kept"):
        engine.run(engine.finish([Ending(job.seq, result_ttl_ms=600_000 if job.seq == numbers[2] else None)], NODE))
    tick(reaper, seconds=59)
    assert JobResult.objects.count() == 3
    tick(reaper, seconds=10)
    assert list(JobResult.objects.values_list("seq", flat=True)) == numbers[2:]
    assert list(StoredJob.objects.values_list("seq", flat=True)) == numbers[2:]
    highest = QueueFloor.objects.filter(kind=3).latest("value").value
    assert highest == numbers[2], "the highest number that ended, kept or not"


def test_the_head_of_a_queue_is_noted_while_its_results_are_the_newest(reaper, clock, monkeypatch) -> None:
    for name in ("work", "other"):
        make(name, result_ttl_ms=60_000)
    numbers = put(2)
    engine.run(engine.ack(seqs(claim(2)), NODE))
    assert "heads" in reaper.tick()
    put(3, "other")
    engine.run(engine.ack(seqs(claim(3, "other")), NODE))
    monkeypatch.setattr(topics, "LOOK", 2)  # only the other queue's results are among so few
    assert engine.run(topics.state("work")).head_seq == numbers[-1]
    clock.advance(seconds=70)
    reaper.round()
    assert not JobResult.objects.exists()
    assert engine.run(topics.state("work")).head_seq == numbers[-1]


def test_results_that_somebody_holds_wait(reaper, clock) -> None:
    make("kept", result_ttl_ms=60_000)
    numbers = put(2, queue="kept")
    failed = [Release(job.seq, delay_ms=0, failure=Failure("E")) for job in claim(2, queue="kept")]
    engine.run(engine.release(failed, NODE))
    engine.run(engine.ack(seqs(claim(2, queue="kept")), NODE))
    assert Attempt.objects.count() == 2
    clock.advance(seconds=61)
    with open_transaction() as other:
        other.connection.execute("SELECT FROM leasequeue_job WHERE seq = %s FOR NO KEY UPDATE", [numbers[0]])
        reaper.tick()
        assert list(JobResult.objects.values_list("seq", flat=True)) == numbers[:1]
    tick(reaper, seconds=5)
    assert not any(model.objects.exists() for model in (StoredJob, JobResult, Attempt))


def test_samples_are_taken_and_thrown_away_in_time(reaper, clock, settings) -> None:
    settings.LEASEQUEUE = {"STAT_RETENTION_DAYS": 2}
    make("work")
    put(3)
    reaper.tick()
    assert QueueStat.objects.get().ready == 3
    put(1)
    tick(reaper, seconds=30)
    assert list(QueueStat.objects.order_by("sampled_at").values_list("ready", flat=True)) == [3, 4]
    tick(reaper, days=2)
    assert QueueStat.objects.filter(sampled_at__lt=clock.now - timedelta(days=2)).count() == 0
    assert QueueStat.objects.filter(sampled_at=clock.now).count() == 1


def test_sampling_goes_on_where_its_turn_was_over(reaper, clock, monkeypatch) -> None:
    for number in range(7):
        make(f"q{number}")
    monkeypatch.setattr(stats, "PAGE", 2)
    short_turns(monkeypatch, 3)
    rounds = 0
    while QueueStat.objects.values("queue").distinct().count() < 7:
        assert "samples" in reaper.tick()
        rounds += 1
    assert 2 < rounds < 10
    clock.advance(seconds=1)
    for _ in range(3):
        reaper.tick()
    assert "samples" not in reaper.tick(), "and then it rests"


def test_workers_that_died_are_forgotten_after_an_hour(reaper, clock, caplog) -> None:
    caplog.set_level("INFO")
    worker("alive", started_at=clock.now, seen_at=clock.now)
    worker("dead", started_at=clock.now, seen_at=clock.now - timedelta(minutes=59))
    reaper.tick()
    assert Worker.objects.count() == 2
    tick(reaper, minutes=2)
    assert [row.node for row in Worker.objects.all()] == ["alive"]
    assert "no longer seen: dead" in caplog.text


def test_queues_that_are_gone_leave_nothing(reaper) -> None:
    keep = make("keep", type="queue")
    put(1, queue="keep")
    lost = []
    for number in range(3):
        lost.append(make(f"lost{number}", max_deliveries=1, exhaust_at="release", dead_letter="self"))
        put(2, queue=f"lost{number}")
        put(1, queue=f"lost{number}", delay_ms=90_000)
        engine.run(engine.nack([one(f"lost{number}").seq], NODE))
        one(f"lost{number}", lease_ms=7_200_000)
        put(1, queue=f"lost{number}")
        engine.run(engine.finish([Ending(one(f"lost{number}", node="x").seq, result_ttl_ms=90_000_000)], "x"))
    lost.append(make("log", type="log"))
    put(2, queue="log")
    reaper.tick()
    # As if each deletion had been interrupted after its first statement.
    rows(models.Queue).filter(pk__in=lost).delete()
    assert (StoredJob.objects.filter(queue_id__in=lost).count(), JobResult.objects.count()) == (14, 3)
    for _ in range(2):
        tick(reaper, hours=1)
    assert list(StoredJob.objects.values_list("queue_id", flat=True)) == [keep]
    for model in (models.Claim, JobResult, Attempt, QueueFloor, QueueRank, QueueStat, models.TopicState):
        assert not model.objects.exclude(queue_id=keep).exists(), model


def test_floors_that_others_followed_and_ranks_that_are_there_twice_go(reaper, clock) -> None:
    queue = make("work")
    put(1)
    put(1, priority=5)
    reaper.tick()
    for value in (1, 2, 3, 3):
        for kind, rank in ((0, 0), (0, -5), (3, 0)):
            rows(QueueFloor).create(queue_id=queue, kind=kind, rank=rank, value=value, made_at=clock.now)
    rows(QueueRank).create(queue_id=queue, rank=0)
    tick(reaper, seconds=31)
    places = list(QueueFloor.objects.values_list("queue_id", "kind", "rank"))
    assert len(places) == len(set(places))
    assert QueueFloor.objects.get(kind=3).value == 3
    assert sorted(QueueRank.objects.values_list("rank", flat=True)) == [-5, 0]


def test_a_large_backlog_of_one_queue_does_not_keep_the_others_waiting(reaper, clock, monkeypatch) -> None:
    """A turn ends when its time is over; what is left goes on in the next round."""
    make("large")
    make("small")
    enqueue(*[NewJob(delay_ms=1_000) for _ in range(5_000)], queue="large")
    put(1, queue="small", delay_ms=1_000)
    put(1, queue="small")
    one("small", lease_ms=1_000)
    reaper.tick()
    clock.advance(seconds=2)
    short_turns(monkeypatch, 2)
    rounds = 0
    while LiveJob.objects.filter(state=1).exists():
        assert {"sweep", "promote"} <= set(reaper.tick()) or rounds
        rounds += 1
        assert not LiveJob.objects.filter(state=2).exists(), "the sweep had its turn in between"
    assert 2 < rounds < 20


def test_a_queue_that_somebody_keeps_locked_stops_no_other(reaper, clock, caplog) -> None:
    queues = [make(name) for name in ("a", "b", "locked", "c")]
    for name in ("a", "b", "locked", "c"):
        put(1, queue=name)
        one(name)
    reaper.tick()
    clock.advance(seconds=31)
    with open_transaction() as other:
        # As a transaction does that extends or settles a job of this queue and is still open.
        other.connection.execute("SELECT FROM leasequeue_claim WHERE queue_id = %s FOR NO KEY UPDATE", [queues[2]])
        for _ in range(8):
            reaper.tick()
            if LiveJob.objects.filter(state=0).count() == 3:
                break
        assert set(LiveJob.objects.filter(state=2).values_list("queue", flat=True)) <= {queues[2]}
    for _ in range(3):
        tick(reaper, seconds=5)
    assert not LiveJob.objects.filter(state=2).exists()


def test_signals_of_a_turn_that_ran_out_of_time_are_sent(reaper, clock, monkeypatch) -> None:
    make("work")
    put(3)
    for _ in range(3):
        one()
    clock.advance(seconds=31)
    heard: list[int] = []
    monkeypatch.setattr(sys.modules["django_leasequeue.engine.leases.sweep"], "CLAIMS", 1)
    short_turns(monkeypatch, 2)
    with connected(signals.stalled, lambda seq, **_: heard.append(seq)):
        reaper.tick()
        assert len(heard) == 1
        for _ in range(5):
            reaper.tick()
        assert len(set(heard)) == len(heard) == 3


def test_every_duty_has_its_own_interval(transactional_db, clock, settings) -> None:
    settings.LEASEQUEUE = {"REAPER": {"INTERVALS": {"sweep": 10, "samples": None}}}
    with leading() as made:
        first = made.tick()
        assert "sweep" in first
        assert "samples" not in first
        assert made.tick() == []
        assert set(tick(made, seconds=0.2)) == {"advance", "floors"}
        often = {"promote", "advance", "floors", "operations"}
        assert set(tick(made, seconds=0.3)) == often
        assert set(tick(made, seconds=0.5)) == {*often, "expire", "recurring", "awaited_results", "timeline"}
        assert "sweep" in tick(made, seconds=9)


def unknown_events() -> int:
    """Ranges of the log's pages that its BRIN indexes did not know of (now they do)."""
    return sum(found for (found,) in run(SUM_UP))


def write_events() -> None:
    run(
        "INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, seqs)"
        " SELECT 1, now(), 1, n, n, 1, ARRAY[n] FROM generate_series(1, 5000) AS n"
    )


def test_the_indexes_of_the_log_know_of_what_was_written_unless_somebody_is_at_it(reaper, test_dsn: str) -> None:
    make()
    write_events()
    assert unknown_events() > 0
    write_events()
    tick(reaper, minutes=2)
    assert unknown_events() == 0
    write_events()
    with psycopg.connect(test_dsn) as other:
        other.execute("LOCK TABLE leasequeue_leaseevent IN SHARE UPDATE EXCLUSIVE MODE")
        assert "summaries" in tick(reaper, minutes=2)
    assert unknown_events() > 0

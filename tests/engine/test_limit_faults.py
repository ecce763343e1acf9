"""Limits by key where it is easy to lose a slot, to give one twice, or to wait for nothing."""

import pytest
from django.db import connection, transaction

from django_leasequeue import engine
from django_leasequeue.engine import Limited, LimitValues, NewJob, Release
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import FlowTurn, LimitKey, Member, StoredJob
from tests.engine.flow import ONE, ack, limited
from tests.engine.helpers import NODE, claim, enqueue, make
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually


@pytest.mark.django_db
class TestSlots:
    @pytest.mark.parametrize("others", [True, False])
    def test_a_queue_that_is_deleted_gives_its_slots_back(self, clock: engine_clock.Clock, others: bool) -> None:
        make()
        limited(["x", "y", "x"])
        assert len(claim(1)) == 1
        if others:
            make("other")
            enqueue(NewJob(1, limit=Limited("x", ONE)), queue="other")
            assert claim(10, queue="other") == []
        engine.run(engine.delete("work"))
        if not others:
            make("other")
            enqueue(NewJob(1, limit=Limited("x", ONE)), queue="other")
        assert len(claim(10, queue="other")) == 1
        assert Member.objects.count() == 1

    def test_an_expired_and_a_purged_job_that_waited_take_none(self, clock: engine_clock.Clock) -> None:
        make()
        first, _ = limited(["x", "x"], ttl_ms=5_000)
        (job,) = claim(10)
        clock.advance(seconds=6)
        engine.run(engine.expire([job.queue_id]))
        limited(["x"] * 3)
        assert engine.run(engine.purge("work", states=("ready", "delayed"))) == 3
        (last,) = limited(["x"])
        assert (job.seq, claim(10)) == (first, [])
        ack(job)
        assert [job.seq for job in claim(10)] == [last]
        assert Member.objects.count() == 1

    def test_the_higher_priority_of_a_key_comes_first(self, clock: engine_clock.Clock) -> None:
        make(priority_order="desc", priority_min=0, priority_max=10)
        (low,), (middle,), (high,) = (limited(["x"], priority=priority) for priority in (0, 1, 5))
        order = []
        while jobs := claim(1):
            order += [job.seq for job in jobs]
            ack(*jobs)
        assert order == [high, middle, low]

    def test_what_cannot_be_limited_is_refused(self) -> None:
        make("topic", type="log")
        with pytest.raises(InvalidOption, match="'topic' is a log"):
            enqueue(NewJob(1, limit=Limited("x", ONE)), queue="topic")
        make()
        for key in (None, "", "x" * 513, "\x00", "\ud800"):
            with pytest.raises(InvalidOption, match="the key of a limit must be"):
                enqueue(NewJob(1, limit=Limited(key, ONE)))  # type: ignore[arg-type]  # just this is refused
        with pytest.raises(InvalidOption, match="limit must be a Limit"):
            enqueue(NewJob(1, limit="customer"))  # type: ignore[arg-type]
        assert not FlowTurn.objects.exists()

    def test_a_key_is_any_text(self, clock: engine_clock.Clock) -> None:
        make()
        keys = ['"', "\\", "{a,b}", "NULL", "é" * 256, "%s", "a\nb", " "]
        limited(keys)
        make(project="tenant")
        enqueue(NewJob(1, limit=Limited(" ", ONE)), project="tenant")
        assert len(claim(10, project="tenant")) == 1, "projects do not share a limit"
        assert len(claim(10)) == len(keys)
        assert sorted(LimitKey.objects.values_list("key", flat=True)) == sorted([*keys, " "])


@pytest.mark.django_db
class TestChanges:
    def test_a_limit_that_sinks_takes_back_what_nobody_has_claimed(self, clock: engine_clock.Clock) -> None:
        make()
        seqs = limited(["x"] * 8, LimitValues("customer", concurrency=6))
        first = claim(2)
        engine.run(engine.set_limits([LimitValues("customer", concurrency=3)]))
        (third,) = claim(10)
        assert [job.seq for job in [*first, third]] == seqs[:3]
        ack(*first, third)
        again = claim(10)
        assert [job.seq for job in again] == seqs[3:6]
        engine.run(engine.set_limits([LimitValues("customer", concurrency=1)]))
        ack(*again)
        assert [job.seq for job in claim(10)] == seqs[6:7]

    def test_a_rate_that_gets_a_concurrency_counts_what_runs(self, clock: engine_clock.Clock) -> None:
        make()
        limited(["x"] * 6, LimitValues("customer", rate=100, per_ms=1_000, burst=1))
        assert len(claim(10)) == 3
        clock.advance(seconds=1)
        engine.run(engine.set_limits([LimitValues("customer", concurrency=4, rate=100, per_ms=1_000, burst=1)]))
        assert len(claim(10)) == 1

    def test_a_limit_that_is_lifted_frees_all_that_wait(self, clock: engine_clock.Clock) -> None:
        make()
        limited(["x"] * 1_200)
        assert len(claim(1)) == 1
        engine.run(engine.set_limits([LimitValues("customer")]))
        assert sum(len(claim(1_000)) for _ in range(3)) == 1_199

    def test_a_job_that_is_tried_again_at_once_pays_for_it(self, clock: engine_clock.Clock) -> None:
        make()
        limited(["x"], LimitValues("customer", rate=1, per_ms=60_000))
        (job,) = claim(10)
        engine.run(engine.release([Release(job.seq, job.token, delay_ms=0)], NODE))
        assert claim(10) == []
        clock.advance(seconds=61)
        (job,) = claim(10)
        engine.run(engine.release([Release(job.seq, job.token)], NODE, unstarted=True))
        assert claim(10) == []
        clock.advance(seconds=61)
        assert len(claim(10)) == 1


@pytest.mark.django_db(transaction=True)
def test_a_job_is_not_taken_out_while_its_member_is_being_made() -> None:
    """The turn of such a cancellation would find no member, and a slot would be kept for a job that is gone."""
    queue_id = make()
    limited(["x"])
    (running,) = claim(10)
    first, second = limited(["x", "x"])

    def cancel() -> None:
        assert engine.run(engine.cancel("work", seqs=[first]))
        engine.run(engine.advance([queue_id]))
        connection.close()

    cancelled = ThreadResult(cancel)
    with transaction.atomic():
        engine.run(engine.advance([queue_id]))
        cancelled.__enter__()
        eventually(
            lambda: _somebody_waits() or not StoredJob.objects.filter(pk=first).exists(), "it waits or is through"
        )
    cancelled.value(60)
    ack(running)
    assert [job.seq for job in claim(10)] == [second]


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])

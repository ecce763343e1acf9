"""Bulk operations: carried out by the reaper in batches, with a pace, through pauses, restarts and conflicts."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from django_leasequeue import engine, models
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.dead import action, bulkoperation
from django_leasequeue.engine.dead.action import act, edit_and_retry
from django_leasequeue.engine.dead.bulkoperation import Asked, change_operation, run_batch, start_operation
from django_leasequeue.engine.dead.filter import DeadFilter, from_query
from django_leasequeue.exceptions import InvalidOption, OperationActive, QueueNotFound
from django_leasequeue.reaper import Duty, Reaper
from django_leasequeue.reaper.duties import operations
from tests.admin.letters import bury, carry_out, die, failure, graves, start, states
from tests.engine.helpers import claim, enqueue, kinds, last_event, make, seqs
from tests.support.rows import rows
from tests.support.waiting import eventually


@pytest.fixture
def reaper(transactional_db: None, clock: Clock) -> Iterator[Reaper]:
    made = Reaper(duties=[Duty("operations", operations, 0.5)])
    assert made.lead()
    yield made
    made.resign()


def tick(reaper: Reaper, clock: Clock, seconds: float = 0.5, made: models.BulkOperation | None = None) -> None:
    clock.advance(seconds=seconds)
    assert reaper.tick() == ["operations"]
    if made is not None:
        made.refresh_from_db()


class TestCarriedOut:
    def test_a_retry_of_everything_that_the_filter_matches(self, reaper: Reaper, clock: Clock) -> None:
        mine = bury(5, failure=failure("a"))
        others = bury(3, failure=failure("b"))
        made = start("retry", "queue=work&fingerprint=a", engine.audit.Actor("admin", "7", "ann"), expected=5)
        assert made.state == "pending"
        tick(reaper, clock, made=made)
        assert (made.state, made.done, made.conflicts, made.looked_at) == ("done", 5, 0, 5)
        assert (made.finished_at, states(mine), states(others)) == (clock.now, ["ready"] * 5, ["dead"] * 3)
        line = models.OperatorAction.objects.get()
        assert (line.action, line.username, line.user_id, line.source) == ("retry.done", "ann", "7", "reaper")
        assert (line.counts, line.operation_id) == ({"done": 5, "conflicts": 0, "looked_at": 5}, made.pk)

    def test_in_batches_the_oldest_first(self, reaper: Reaper, clock: Clock, monkeypatch) -> None:
        monkeypatch.setattr(bulkoperation, "BATCH", 4)
        old = bury(6)
        clock.advance(seconds=1)
        new = bury(4)
        made = start("retry")
        clock.advance(seconds=1)
        later = bury(2)
        assert engine.run(run_batch(made.pk)) is True
        assert states(old) == ["ready"] * 4 + ["dead"] * 2
        carry_out(made)
        assert (made.state, made.done, states(new), states(later)) == ("done", 10, ["ready"] * 4, ["dead"] * 2)
        die(old + new)  # again
        tick(reaper, clock)
        assert states(old + new) == ["dead"] * 10

    def test_redrive_to_another_queue_with_jitter(self, reaper: Reaper, clock: Clock) -> None:
        make("spare")
        bury(20)
        made = start("redrive", "queue=work", to="spare", jitter_ms=60_000)
        tick(reaper, clock, made=made)
        assert made.done == 20
        moved = models.LiveJob.objects.filter(queue__name="spare")
        waits = {(job.available_at - clock.now).total_seconds() for job in moved if job.available_at}
        assert (len(waits) > 10, max(waits) <= 60, all(job.source_seq for job in moved)) == (True, True, True)

    def test_letters_of_a_dead_letter_topic_go_home(self, reaper: Reaper, clock: Clock) -> None:
        for name in "abc":
            graves(name, dead_letter="letters")
            bury(2, name)
        engine.run(engine.delete("c"))
        made = start("retry", "queue=letters")
        tick(reaper, clock, made=made)
        assert (made.done, made.conflict_counts) == (4, {"no_home": 2})
        assert [len(claim(5, name)) for name in "ab"] == [2, 2]

    def test_discard_remembers_the_failure_while_results_are_kept(self, reaper: Reaper, clock: Clock) -> None:
        graves(result_ttl_ms=60_000)
        (seq,) = bury(1, key="order-1")
        start("discard", reason="test order")
        tick(reaper, clock)
        result = models.JobResult.objects.get(seq=seq)
        assert (result.get_state_display(), result.error) == ("failed", "card 17 was declined")
        assert models.StoredJob.objects.get(pk=seq).key == "order-1"
        assert last_event(seq).detail == {"reason": "discarded", "words": "test order"}
        assert kinds(seq)[-1] == "cancelled"


class TestPace:
    @pytest.mark.parametrize(("rate", "seconds", "batch", "count", "expected"), [
        (20, 0.5, 1_000, 100, {0: 1, 1: 11, 2: 21, 5: 51}),
        (0.1, 1, 1_000, 3, {0: 1, 9: 1, 10: 2, 20: 3}),  # less than one a second
        (100, 0.5, 10, 100, {1: 51}),  # a high rate is not bound by the turns
    ])  # fmt: skip
    def test_jobs_a_second(
        self, reaper: Reaper, clock: Clock, monkeypatch: pytest.MonkeyPatch,
        rate: float, seconds: float, batch: int, count: int, expected: dict[int, int],
    ) -> None:  # fmt: skip
        monkeypatch.setattr(bulkoperation, "BATCH", batch)
        bury(count)
        made = start("retry", rate=rate)
        done = []
        for _ in range(max(expected) + 1):
            tick(reaper, clock, seconds, made=made)
            done.append(made.done)
        assert {turn: done[turn] for turn in expected} == expected

    def test_it_does_not_catch_up_on_all_of_a_minute_without_a_reaper(self, reaper: Reaper, clock: Clock) -> None:
        found = bury(100)
        made = start("retry", rate=20)
        tick(reaper, clock)
        tick(reaper, clock, 60, made=made)
        assert made.done == 41
        for _ in range(2):
            tick(reaper, clock, 5)
        assert states(found) == ["ready"] * 100


class TestPauseCancelRestart:
    def test_pause_resume_and_cancel(self, reaper: Reaper, clock: Clock) -> None:
        found = bury(50)
        made = start("retry", rate=20)
        tick(reaper, clock)
        tick(reaper, clock)
        for change, seconds, expected in (
            ("pause", 10, ("paused", 11)), ("resume", 0.5, ("running", 12)), ("cancel", 10, ("cancelled", 12)),
        ):  # fmt: skip
            assert engine.run(change_operation(made.pk, change)) is not None
            tick(reaper, clock, seconds, made=made)
            assert (made.state, made.done) == expected, "no burst for the time of the pause"
            again = "resume" if change == "cancel" else change
            assert engine.run(change_operation(made.pk, again)) is None
        assert (made.finished_at is not None, states(found).count("ready")) == (True, 12)
        with pytest.raises(InvalidOption):
            engine.run(change_operation(made.pk, "explode"))

    def test_a_crash_in_a_batch_and_two_at_once(self, reaper: Reaper, clock: Clock, test_dsn: str) -> None:
        found = bury(10)
        made = start("retry")

        class Crashing(engine.DjangoExecutor):
            def fetch(self, name: str, params: Any) -> Any:
                if name == "operation_note":  # all else of the batch is done
                    raise psycopg.OperationalError("the server is gone")
                return super().fetch(name, params)

        with pytest.raises(psycopg.OperationalError):
            Crashing("default").run(run_batch(made.pk))
        with psycopg.connect(test_dsn) as other:
            other.execute("SELECT FROM leasequeue_bulkoperation WHERE id = %s FOR UPDATE", [made.pk])
            assert engine.run(run_batch(made.pk)) is False
        made.refresh_from_db()
        assert (made.state, made.done, states(found)) == ("pending", 0, ["dead"] * 10)
        tick(reaper, clock, made=made)
        assert (made.state, made.done) == ("done", 10)

    def test_a_batch_that_the_database_refuses_ends_it(self, reaper: Reaper, clock: Clock, monkeypatch) -> None:
        bury(2)
        made, second = start("retry"), start("discard", reason="x")

        def refuse(kind, *args, **kwargs):
            if kind == "retry":
                raise psycopg.DataError("no such thing")
            return (yield from action.act_steps(kind, *args, **kwargs))

        monkeypatch.setattr(bulkoperation, "act_steps", refuse)
        tick(reaper, clock, made=made)
        second.refresh_from_db()
        assert (made.state, made.error) == ("failed", "The database refused a batch: no such thing")
        assert (second.state, second.done) == ("done", 2)
        assert models.OperatorAction.objects.filter(action="retry.failed").count() == 1


@pytest.mark.slow
def test_a_killed_process_leaves_each_job_retried_once(subprocess_env: dict[str, str]) -> None:
    found = bury(2_000)
    command = [sys.executable, "-m", "django", "leasequeue_dlq", "retry", "--yes", "--here", "--rate", "500"]
    with subprocess.Popen(command, env=subprocess_env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            made = eventually(lambda: models.BulkOperation.objects.filter(done__gt=1, done__lt=2_000).first())
        finally:
            process.kill()
    made.refresh_from_db()
    assert made.is_active
    assert states(found).count("ready") == made.done
    rows(models.BulkOperation).update(rate=None)
    carry_out(made)
    assert (made.state, made.done, made.conflicts, states(found)) == ("done", 2_000, 0, ["ready"] * 2_000)
    assert models.JobEvent.objects.filter(kind=models.EventKind.REDRIVEN).count() == 2_000


class TestConflicts:
    def test_of_a_selection(self, reaper: Reaper, clock: Clock, monkeypatch) -> None:
        retried, gone, again, fine, fine_too = found = bury(5)
        clock.advance(seconds=1)
        made = start("retry", seqs=[*found, 999_999], expected=5)
        engine.run(act("retry", [retried, again]))
        engine.run(act("discard", [gone], reason="x"))
        clock.advance(seconds=1)
        die([again, retried])
        engine.run(act("retry", [retried]))
        tick(reaper, clock, made=made)
        assert (made.state, made.done, made.conflicts) == ("done", 2, 4)
        assert made.conflict_counts == {"retried": 1, "gone": 2, "died_again": 1}
        sample = [[retried, "retried"], [gone, "gone"], [again, "died_again"], [999_999, "gone"]]
        assert sorted(made.conflict_sample) == sorted(sample)
        assert states([fine, fine_too, again]) == ["ready", "ready", "dead"]
        monkeypatch.setattr(bulkoperation, "MAX_CONFLICTS", 3)
        monkeypatch.setattr(bulkoperation, "BATCH", 2)
        made = start("retry", seqs=range(999_900, 999_907))
        tick(reaper, clock, made=made)
        assert (made.conflicts, made.conflict_counts) == (7, {"gone": 7})
        assert len(made.conflict_sample) == 3, "only the first are remembered one by one"

    def test_a_target_that_went_away_and_a_locked_row(self, reaper: Reaper, clock: Clock, test_dsn: str) -> None:
        make("spare")
        held, free = found = bury(2)
        made = start("redrive", to="spare")
        engine.run(engine.delete("spare"))
        tick(reaper, clock, made=made)
        assert (made.state, made.done, made.conflict_counts) == ("done", 0, {"no_target": 2})
        assert states(found) == ["dead", "dead"]
        with psycopg.connect(test_dsn) as other:
            other.execute("SELECT FROM leasequeue_deadletter WHERE seq = %s FOR UPDATE", [held])
            done = engine.run(act("retry", [held, free]))
        assert (done.done, done.conflicts) == (1, [(held, "busy")])


@pytest.mark.django_db
class TestStart:
    def test_one_active_for_a_queue_and_kind(self) -> None:
        graves("a")
        graves("b")
        first = start("retry", "queue=a")
        with pytest.raises(OperationActive, match=str(first.pk)) as caught:
            start("retry", "queue=a&text=x")
        assert caught.value.operation == first.pk
        with pytest.raises(OperationActive):
            start("retry")  # all queues: that one too
        start("retry", "queue=b")
        start("discard", "queue=a", reason="x")
        engine.run(change_operation(first.pk, "cancel"))
        start("retry", "queue=a")

    def test_what_is_not_allowed(self) -> None:
        make("spare")
        make("records", type="log")
        for kind, options, words in (
            ("explode", {}, "one of retry"), ("discard", {}, "reason"), ("discard", {"reason": "  "}, "reason"),
            ("redrive", {}, "needs the name"), ("retry", {"to": "spare"}, "needs the name"),
            ("retry", {"rate": 0}, "rate"), ("retry", {"rate": 1e9}, "rate"), ("retry", {"jitter_ms": -1}, "jitter_ms"),
            ("retry", {"seqs": range(10_001)}, "10000"),
            ("discard", {"reason": "why", "from_step": "mail"}, "from_step"),
            *(("retry", {"from_step": name}, "from_step") for name in ("", "x" * 900, 7)),
        ):  # fmt: skip
            with pytest.raises(InvalidOption, match=words):
                start(kind, **options)
        with pytest.raises(QueueNotFound):
            start("redrive", to="nowhere")
        assert not models.BulkOperation.objects.exists()

    def test_the_filter_is_kept_as_it_was_and_a_time_in_the_future_is_now(self, clock: Clock) -> None:
        made = start("retry", "since=1h&payload=data.a = 1&queue=a")
        assert from_query(made.filters) == from_query("since=2030-01-01T11:00Z&payload=data.a = 1&queue=a")
        assert (made.queue, made.project) == ("a", None)
        later = datetime(2040, 1, 1, tzinfo=UTC)
        number = engine.run(start_operation(Asked("discard", DeadFilter(), reason="x", at=later)))
        assert models.BulkOperation.objects.get(pk=number).frozen_at == clock.now


@pytest.mark.django_db
class TestEdit:
    def edit(self, seq: int, data, **options):
        dead_at = models.LiveJob.objects.get(pk=seq).dead_at
        return engine.run(edit_and_retry(options.pop("queue", "work"), seq, data=data, dead_at=dead_at, **options))

    def test_a_new_job_takes_its_place(self) -> None:
        (old,) = bury(1, key="order-1", tag="eu", meta={"timeout": 5}, data={"args": [1]})
        done = self.edit(old, {"args": [2]})
        assert done.queue == "work"
        new = models.LiveJob.objects.get(pk=done.seq)
        kept = ({"args": [2]}, "order-1", "eu", "shop.tasks.charge", {"timeout": 5})
        assert (new.data, new.key, new.tag, new.name, new.meta) == kept
        assert (new.source_seq, new.deliveries, new.error_type) == (old, 0, "shop.Declined")
        assert [models.Attempt.objects.filter(seq=seq).count() for seq in (old, done.seq)] == [1, 1]
        result, before = models.JobResult.objects.get(seq=old), models.StoredJob.objects.get(pk=old)
        assert (result.result, result.get_state_display()) == ({"edited_into": done.seq}, "cancelled")
        assert (before.data, before.key) == ({"args": [1]}, None)
        assert last_event(old).detail == {"to": "work", "to_seq": done.seq, "edited": True}
        assert last_event(done.seq).detail == {"redriven_from": old, "edited": True}
        assert seqs(claim(2)) == [done.seq]

    def test_a_letter_of_a_dead_letter_topic_goes_home_if_it_can(self) -> None:
        graves(dead_letter="letters")
        bury(1, data=1)
        bury(1, key="k")
        first, second = models.LiveJob.objects.filter(queue__name="letters").order_by("pk")
        done = self.edit(first.pk, 2, queue="letters")
        assert (done.queue, models.StoredJob.objects.get(pk=done.seq).data) == ("work", 2)
        enqueue(NewJob(key="k"))
        assert self.edit(second.pk, 2, queue="letters").conflict == "key_taken"
        engine.run(engine.delete("work"))
        assert self.edit(second.pk, 2, queue="letters").conflict == "no_home"
        assert states([second.pk]) == ["record"]

    def test_another_death_is_a_conflict_and_the_bounds_hold(self, settings) -> None:
        (seq,) = bury(1)
        dead_at = models.LiveJob.objects.get(pk=seq).dead_at
        engine.run(act("retry", [seq]))
        die([seq])
        assert engine.run(edit_and_retry("work", seq, data=1, dead_at=dead_at)).conflict == "gone"
        assert models.StoredJob.objects.get(pk=seq).data != 1
        settings.LEASEQUEUE = {"MAX_PAYLOAD_BYTES": 100}
        with pytest.raises(InvalidOption, match="100 bytes"):
            self.edit(seq, "x" * 200)
        assert states([seq]) == ["dead"]

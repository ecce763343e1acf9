"""The Python door as a queue model, by its preset ``codeq``."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_leasequeue import NewJob, Queue
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.exceptions import InvalidOption, JobNotFound, LeaseLost, QueueNotFound
from django_leasequeue.models import JobResult, LiveJob, StoredJob
from django_leasequeue.models import Queue as QueueRow

pytestmark = pytest.mark.django_db


def codeq(name: str = "work", **options: Any) -> Queue:
    return Queue(name, preset="codeq", node="worker-1", **options)


def other(queue: Queue) -> Queue:
    """The same queue, as another worker has it."""
    return Queue(queue.name, project=queue.project, node="worker-2")


def payloads(queue: Queue, size: int = 10, **options: Any) -> list[Any]:
    return [job.payload for job in queue.claim(size, **options)]


class TestQ1Order:
    def test_higher_priority_first(self) -> None:
        queue = codeq()
        for priority in (0, 9, 5):
            queue.enqueue(priority, priority=priority)
        assert [queue.claim()[0].payload for _ in range(3)] == [9, 5, 0]

    def test_first_in_first_out_inside_a_priority(self) -> None:
        queue = codeq()
        for number in range(20):
            queue.enqueue(number, priority=number % 2)
        assert payloads(queue, 20) == [*range(1, 20, 2), *range(0, 20, 2)]

    def test_priorities_are_clamped(self) -> None:
        queue = codeq()
        queue.enqueue("nine", priority=9)
        queue.enqueue("above", priority=1_000)
        queue.enqueue("below", priority=-1_000)
        queue.enqueue("none")
        assert payloads(queue) == ["nine", "above", "below", "none"]


class TestQ2Delay:
    def test_not_before_its_time_whatever_its_priority(self, clock: engine_clock.Clock) -> None:
        queue = codeq()
        queue.enqueue("later", delay_ms=30_000, priority=9)
        queue.enqueue("at", run_at=clock.now + timedelta(seconds=30), priority=9)
        queue.enqueue("now", priority=0)
        assert payloads(queue) == ["now"]
        clock.advance(seconds=29.999)
        assert payloads(queue) == []
        clock.advance(seconds=0.001)
        assert sorted(payloads(queue)) == ["at", "later"]

    def test_then_at_the_back_of_its_bucket(self, clock: engine_clock.Clock) -> None:
        queue = codeq()
        queue.enqueue("delayed", delay_ms=1_000)
        queue.enqueue("waiting")
        clock.advance(seconds=1)
        assert payloads(queue) == ["waiting", "delayed"]

    @pytest.mark.slow
    def test_far_future_jobs_do_not_touch_a_claim(self) -> None:
        queue = codeq()
        queue.enqueue_many(NewJob(number, delay_ms=86_400_000) for number in range(100_000))
        queue.enqueue("now")
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE leasequeue_job, leasequeue_delayed")
            cursor.execute("SET LOCAL enable_seqscan = off")
            before = _tuples_read(cursor)
            assert payloads(queue, 1) == ["now"]
            assert _tuples_read(cursor) - before < 50


def _tuples_read(cursor: Any) -> int:
    """Rows of jobs and their places that this transaction's index and table scans have fetched so far."""
    cursor.execute(
        "SELECT sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))"
        " FROM pg_class c WHERE c.relname IN ('leasequeue_job', 'leasequeue_ready', 'leasequeue_delayed')"
    )
    return int(cursor.fetchone()[0])


class TestQ3Key:
    def test_the_same_key_gives_the_original_back_in_every_state(self, clock: engine_clock.Clock) -> None:
        queue = codeq()
        first = queue.enqueue({"a": 1}, key="k")
        seen = [queue.enqueue({"a": 2}, key="k")]
        [job] = queue.claim()
        seen.append(queue.enqueue({"a": 3}, key="k"))
        queue.nack(job, delay_ms=1_000, error="boom")
        seen.append(queue.enqueue({"a": 4}, key="k"))
        clock.advance(seconds=1)
        [job] = queue.claim()
        assert job.payload == {"a": 1}
        queue.ack(job, "done")
        seen.append(queue.enqueue({"a": 5}, key="k"))
        assert {receipt.seq for receipt in seen} == {first.seq}
        assert [(receipt.status, receipt.state) for receipt in seen] == [
            ("duplicate", "queued"),
            ("duplicate", "processing"),
            ("duplicate", "failing"),
            ("completed", "completed"),
        ]

    def test_until_retention(self, clock: engine_clock.Clock) -> None:
        queue = codeq()
        first = queue.enqueue(1, key="k")
        queue.ack(queue.claim()[0])
        clock.advance(hours=24)
        again = queue.enqueue(2, key="k")
        assert again.status == "queued"
        assert again.seq != first.seq

    def test_within_one_call(self) -> None:
        receipts = codeq().enqueue_many([NewJob(1, key="a"), NewJob(2, key="a"), NewJob(3, key="b")])
        assert [receipt.status for receipt in receipts] == ["queued", "duplicate", "queued"]


class TestQ4Expiry:
    def test_an_expired_lease_puts_the_job_at_the_back(self, clock: engine_clock.Clock) -> None:
        queue = codeq()
        queue.enqueue("slow", key="slow")
        queue.claim(lease_ms=1_000)
        queue.enqueue("fresh")
        clock.advance(seconds=1.001)
        assert payloads(other(queue)) == ["fresh", "slow"]

    def test_abandoned_at_the_back_and_the_workers_fields_cleared(self, clock: engine_clock.Clock) -> None:
        queue = codeq()
        seq = queue.enqueue("given back").seq
        [job] = queue.claim()
        queue.enqueue("fresh")
        queue.nack(job, delay_ms=0)
        row = LiveJob.objects.get(pk=seq)
        assert (row.node, row.claim, row.deadline) == (None, None, None)
        assert row.position > seq
        assert payloads(other(queue)) == ["fresh", "given back"]

    @pytest.mark.parametrize("call", ["ack", "nack", "extend", "fail", "progress"])
    def test_the_old_worker_is_refused(self, clock: engine_clock.Clock, call: str) -> None:
        queue = codeq()
        queue.enqueue(1, key="k")
        [late] = queue.claim(lease_ms=1_000)
        clock.advance(seconds=2)
        [job] = other(queue).claim()
        arguments = {"fail": ("why",), "progress": (1,)}.get(call, ())
        with pytest.raises(LeaseLost):
            getattr(queue, call)(late, *arguments)
        assert other(queue).ack(job).state == "completed"

    def test_a_late_submit_is_refused_though_nobody_else_has_the_job(self, clock: engine_clock.Clock) -> None:
        queue = codeq()
        queue.enqueue(1)
        [late] = queue.claim(lease_ms=1_000)
        clock.advance(seconds=2)
        with pytest.raises(LeaseLost):
            queue.ack(late)
        assert payloads(other(queue)) == [1]


class TestQ5Deliveries:
    def _exhaust(self, queue: Queue, clock: engine_clock.Clock, times: int) -> str:
        state = ""
        for _ in range(times):
            [job] = queue.claim()
            state = queue.nack(job, delay_ms=0, error=ValueError("boom")).state
        return state

    def test_n_deliveries_are_n_executions(self, clock: engine_clock.Clock) -> None:
        queue = codeq(max_deliveries=3)
        queue.enqueue(1, key="k")
        assert self._exhaust(queue, clock, 2) == "ready"
        assert self._exhaust(queue, clock, 1) == "dead"
        assert queue.claim() == []
        status = queue.get_status("k")
        assert status is not None
        assert (status.state, status.deliveries, status.error_type, status.error) == (
            "failed",
            3,
            "builtins.ValueError",
            "boom",
        )

    def test_dead_by_expiry(self, clock: engine_clock.Clock) -> None:
        queue = codeq(max_deliveries=1)
        queue.enqueue(1, key="k")
        queue.claim()
        clock.advance(seconds=301)
        assert queue.claim() == []
        assert queue.get_status("k").error_type == "LEASE_EXPIRED"  # type: ignore[union-attr]  # it is there

    def test_dead_without_a_reason(self) -> None:
        queue = codeq(max_deliveries=1)
        queue.enqueue(1, key="k")
        assert queue.nack(queue.claim()[0]).state == "dead"
        assert queue.get_status("k").error_type == "MAX_ATTEMPTS"  # type: ignore[union-attr]  # it is there

    def test_an_operator_redrives_it(self, clock: engine_clock.Clock) -> None:
        queue = codeq(max_deliveries=1)
        seq = queue.enqueue(1, key="k").seq
        self._exhaust(queue, clock, 1)
        clock.advance(hours=23)
        assert queue.claim() == []
        [answer, missing, unknown] = queue.redrive(["k", 10**12, "nobody"])
        assert (answer.seq, answer.state) == (seq, "ready")
        assert (missing.state, unknown.state) == ("not_found", "not_found")
        [job] = queue.claim()
        assert (job.key, job.deliveries) == ("k", 1)

    def test_redrive_to_another_queue(self) -> None:
        queue, target = codeq(max_deliveries=1), codeq("target")
        target.create()
        queue.enqueue("letter", key="k")
        queue.nack(queue.claim()[0])
        assert queue.redrive("k", to="target")[0].state == "ready"
        assert payloads(target) == ["letter"]


class TestQ6Backoff:
    """The formulas: min(b, m), min(b*a, m), min(b*2^a, m), half + rand(half), rand(0..cap); a = deliveries so far."""

    def _delays(self, clock: engine_clock.Clock, tries: int, **options: Any) -> list[float]:
        queue = codeq(max_deliveries=0, backoff_base_ms=1_000, backoff_max_ms=5_000, **options)
        queue.enqueue(1)
        delays = []
        for _ in range(tries):
            [job] = queue.claim()
            back = queue.nack(job).available_at
            delays.append((back - clock.now).total_seconds() if back else 0.0)
            clock.advance(seconds=6)
        return delays

    def test_fixed(self, clock: engine_clock.Clock) -> None:
        assert self._delays(clock, 3, backoff="fixed") == [1, 1, 1]

    def test_linear(self, clock: engine_clock.Clock) -> None:
        assert self._delays(clock, 7, backoff="linear") == [1, 2, 3, 4, 5, 5, 5]

    def test_exponential(self, clock: engine_clock.Clock) -> None:
        assert self._delays(clock, 4, backoff="exponential") == [2, 4, 5, 5]

    def test_equal_jitter(self, clock: engine_clock.Clock) -> None:
        delays = self._delays(clock, 20, backoff="exp_equal_jitter")
        assert 1 <= delays[0] <= 2
        assert 2 <= delays[1] <= 4
        assert all(2.5 <= delay <= 5 for delay in delays[2:])
        assert len(set(delays[2:])) > 10

    def test_full_jitter(self, clock: engine_clock.Clock) -> None:
        delays = self._delays(clock, 20, backoff="exp_full_jitter")
        assert delays[0] <= 2
        assert delays[1] <= 4
        assert all(0 <= delay <= 5 for delay in delays)
        assert len(set(delays)) > 10

    def test_a_delay_of_the_caller_wins(self, clock: engine_clock.Clock) -> None:
        queue = codeq()
        queue.enqueue(1)
        back = queue.nack(queue.claim()[0], delay_ms=7_000).available_at
        assert back == clock.now + timedelta(seconds=7)


class TestQ7Submit:
    def test_completed_with_a_result(self) -> None:
        queue = codeq()
        queue.enqueue(1, key="k")
        finished = queue.ack(queue.claim()[0], {"answer": 42})
        assert (finished.state, finished.result, finished.repeated) == ("completed", {"answer": 42}, False)
        assert queue.get_result("k") == {"answer": 42}

    def test_failed_is_terminal_and_no_dead_letter(self, clock: engine_clock.Clock) -> None:
        queue = codeq()
        queue.enqueue(1, key="k")
        assert queue.fail(queue.claim()[0], ValueError("no use")).state == "failed"
        clock.advance(hours=1)
        assert queue.claim() == []
        assert queue.counts().dead == 0
        assert queue.list_jobs("dead").jobs == []
        status = queue.get_status("k")
        assert status is not None
        assert (status.state, status.error) == ("failed", "no use")

    def test_a_repeat_returns_the_stored_record(self) -> None:
        queue = codeq()
        queue.enqueue(1, key="done")
        queue.enqueue(2, key="failed")
        done, failed = queue.claim(2)
        queue.ack(done, {"answer": 42})
        queue.fail(failed, "no use")
        again = queue.ack(done, {"answer": 43})
        assert (again.state, again.result, again.repeated) == ("completed", {"answer": 42}, True)
        assert queue.fail(failed, "other").repeated
        assert queue.get_result("done") == {"answer": 42}
        assert JobResult.objects.count() == 2

    def test_another_end_is_refused(self) -> None:
        queue = codeq()
        queue.enqueue(1, key="k")
        [job] = queue.claim()
        queue.ack(job, 1)
        with pytest.raises(JobNotFound):
            queue.fail(job, "changed my mind")
        with pytest.raises(JobNotFound):
            queue.nack(job)
        assert queue.get_result("k") == 1

    def test_another_holder_gets_no_record(self) -> None:
        queue = codeq()
        queue.enqueue(1, key="k")
        [job] = queue.claim()
        queue.ack(job, 1)
        imposter = type(job)(job.lease, "worker-2")
        with pytest.raises(JobNotFound):
            queue.ack(imposter, 1)


class TestQ8OnePlaceAtATime:
    def _places(self, queue: Queue, key: str) -> list[str]:
        seqs = list(StoredJob.objects.filter(key=key).values_list("seq", flat=True))
        places = [state for state in ("ready", "delayed", "leased", "dead") if self._listed(queue, state, key)]
        return places + ["finished"] * JobResult.objects.filter(seq__in=seqs).count()

    def _listed(self, queue: Queue, state: str, key: str) -> bool:
        return any(job.key == key for job in queue.list_jobs(state).jobs)

    def test_in_exactly_one_place_after_every_move(self, clock: engine_clock.Clock) -> None:
        queue = codeq(max_deliveries=3)
        queue.enqueue(1, key="k", delay_ms=1_000)
        seen = [self._places(queue, "k")]
        clock.advance(seconds=1)
        [job] = queue.claim()
        seen.append(self._places(queue, "k"))
        queue.nack(job, delay_ms=0)
        seen.append(self._places(queue, "k"))
        [job] = queue.claim()
        queue.nack(job, delay_ms=60_000)
        seen.append(self._places(queue, "k"))
        clock.advance(seconds=60)
        [job] = queue.claim()
        queue.nack(job)
        seen.append(self._places(queue, "k"))
        queue.redrive("k")
        seen.append(self._places(queue, "k"))
        queue.ack(queue.claim()[0])
        seen.append(self._places(queue, "k"))
        assert seen == [["delayed"], ["leased"], ["ready"], ["delayed"], ["dead"], ["ready"], ["finished"]]

    def test_a_move_that_fails_changes_nothing(self) -> None:
        queue = codeq()
        queue.enqueue(1, key="k")
        [job] = queue.claim()
        with pytest.raises(InvalidOption):
            queue.ack(job, float("nan"))
        assert self._places(queue, "k") == ["leased"]
        assert queue.ack(job, 1).state == "completed"


class TestQ9Tenants:
    def test_counts_per_queue_and_project(self, clock: engine_clock.Clock) -> None:
        ours, theirs = codeq(project="ours", max_deliveries=1), codeq(project="theirs")
        ours.enqueue_many([1, 2, 3, 4])
        ours.enqueue(5, delay_ms=1_000)
        theirs.enqueue(1)
        held, dead = ours.claim(2)
        ours.nack(dead)
        assert held.queue == "work"
        counts = ours.counts()
        assert (counts.ready, counts.delayed, counts.in_flight, counts.dead) == (2, 1, 1, 1)
        assert (theirs.counts().ready, theirs.counts().in_flight) == (1, 0)

    def test_tenants_never_see_each_others_jobs(self) -> None:
        ours, theirs = codeq(project="ours"), codeq(project="theirs")
        seq = ours.enqueue("secret", key="k").seq
        theirs.create()
        [job] = ours.claim()
        assert theirs.claim() == []
        assert theirs.get_status("k") is None
        assert theirs.get_status(seq) is None
        assert theirs.cancel("k") == "not_found"
        assert theirs.enqueue("mine", key="k").status == "queued"
        with pytest.raises(JobNotFound):
            theirs.ack(job)
        ours.ack(job, "result")
        assert theirs.get_result(seq, "nothing") == "nothing"
        assert theirs.update_result_ttl(seq, 1) is False
        assert ours.get_result("k") == "result"


class TestQ10Progress:
    def test_progress_is_any_json_and_kept_over_retries(self) -> None:
        queue = codeq()
        queue.enqueue(1, key="k")
        [job] = queue.claim()
        queue.progress(job, {"percent": 40, "step": ["a", None]})
        queue.nack(job, delay_ms=0, error="boom")
        assert queue.get_status("k").progress == {"percent": 40, "step": ["a", None]}  # type: ignore[union-attr]
        [again] = queue.claim()
        assert again.progress == {"percent": 40, "step": ["a", None]}
        queue.progress(again, "nearly there")
        queue.ack(again)
        assert queue.get_status("k").progress == "nearly there"  # type: ignore[union-attr]  # it is there

    def test_jobs_of_a_state_in_claim_order(self) -> None:
        queue = codeq()
        for number, priority in enumerate((1, 5, 1, 9)):
            queue.enqueue(number, priority=priority)
        listed = queue.list_jobs("ready", size=3)
        rest = queue.list_jobs("ready", after=listed.next)
        assert [job.data for job in listed.jobs + rest.jobs] == [3, 1, 0, 2] == payloads(queue)


class TestTheHandle:
    def test_makes_its_queue_with_its_first_job(self) -> None:
        codeq(lease_ms=7_000).enqueue(1)
        row = QueueRow.objects.get(name="work")
        assert (row.requeue, row.lease_ms) == ("back", 7_000)

    def test_makes_its_queue_with_its_first_claim(self) -> None:
        assert codeq().claim() == []
        assert QueueRow.objects.get(name="work").requeue == "back"

    def test_what_the_settings_declare_wins(self, settings: Any) -> None:
        settings.LEASEQUEUE = {"QUEUES": {"work": {"preset": "jobqueue", "lease_ms": 9_000}}}
        codeq(lease_ms=7_000).enqueue(1)
        row = QueueRow.objects.get(name="work")
        assert (row.priority_order, row.lease_ms) == ("none", 9_000)

    def test_makes_nothing_where_queues_must_be_declared(self, settings: Any) -> None:
        settings.LEASEQUEUE = {"AUTO_CREATE": False}
        for call in (lambda: codeq().enqueue(1), lambda: codeq().claim(), lambda: codeq().make()):
            with pytest.raises(QueueNotFound):
                call()
        assert codeq().create() is True
        assert codeq().enqueue(1).status == "queued"

    def test_is_cheap_and_compares_by_what_it_names(self) -> None:
        assert Queue("a") == Queue("a", preset="codeq")
        assert len({Queue("a"), Queue("a"), Queue("a", project="p"), Queue("b")}) == 3
        assert repr(Queue("a", project="p")) == "Queue('a', project='p')"

    @pytest.mark.parametrize(
        "arguments", [{"name": ""}, {"name": "a b"}, {"name": "a", "preset": "nope"}, {"name": "a", "lease": 1}]
    )
    def test_refuses_bad_names_and_options_at_once(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(InvalidOption):
            Queue(**arguments)

    def test_settles_only_what_a_claim_gave(self) -> None:
        queue = codeq()
        for call in (queue.ack, queue.nack, queue.extend):
            with pytest.raises(InvalidOption, match="the ClaimedJob that claim returned"):
                call("k")

    def test_refuses_what_cannot_name_a_job(self) -> None:
        with pytest.raises(InvalidOption, match="named by"):
            codeq().cancel(1.5)

    def test_times_are_aware_and_utc(self) -> None:
        queue = codeq()
        queue.enqueue(1, key="k")
        [job] = queue.claim()
        status = queue.get_status("k")
        assert status is not None
        for value in (job.created_at, job.claimed_at, job.deadline, status.created_at, status.claimed_at):
            assert isinstance(value, datetime)
            assert value.utcoffset() == timedelta(0)

    def test_jobs_never_change(self) -> None:
        queue = codeq()
        queue.enqueue({"a": 1})
        [job] = queue.claim()
        with pytest.raises(AttributeError):
            job.node = "somebody"  # type: ignore[misc]  # what is tested
        extended = queue.extend(job, 600_000)
        assert extended.deadline > job.deadline
        assert extended.token == job.token

    def test_many_at_once(self) -> None:
        queue = codeq()
        receipts = queue.enqueue_many(range(5))
        assert [receipt.status for receipt in receipts] == ["queued"] * 5
        jobs = queue.claim(5)
        assert queue.extend_many(jobs[:2], 60_000).ok == [job.seq for job in jobs[:2]]
        assert queue.ack_many(jobs[:3]).ok == [job.seq for job in jobs[:3]]
        assert queue.nack_many(jobs[3:], unstarted=True).ok == [job.seq for job in jobs[3:]]
        assert [outcome.value for outcome in queue.ack_many(jobs).outcomes.values()] == ["not_found"] * 3 + [
            "not_held"
        ] * 2
        assert [job.deliveries for job in queue.claim(5)] == [1, 1]

    def test_pause_and_purge(self) -> None:
        queue = codeq()
        queue.enqueue_many(range(3))
        queue.pause()
        assert queue.claim() == []
        queue.pause(False)
        assert queue.purge() == 3
        assert queue.counts().ready == 0

    def test_all_of_an_enqueue_or_nothing(self) -> None:
        queue = codeq()
        with pytest.raises(InvalidOption):
            queue.enqueue_many([1, 2, float("inf")])
        assert queue.counts().ready == 0 if queue.info() else True

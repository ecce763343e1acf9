"""The Python door as a queue model, by its preset ``codeq``."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_leasequeue import Queue
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.exceptions import InvalidOption, JobNotFound, QueueNotFound
from django_leasequeue.models import JobResult
from django_leasequeue.models import Queue as QueueRow

pytestmark = pytest.mark.django_db


def codeq(name: str = "work", **options: Any) -> Queue:
    return Queue(name, preset="codeq", node="worker-1", **options)


def other(queue: Queue) -> Queue:
    """The same queue, as another worker has it."""
    return Queue(queue.name, project=queue.project, node="worker-2")


def payloads(queue: Queue, size: int = 10, **options: Any) -> list[Any]:
    return [job.payload for job in queue.claim(size, **options)]


class TestQ5Deliveries:
    def _exhaust(self, queue: Queue, clock: engine_clock.Clock, times: int) -> str:
        state = ""
        for _ in range(times):
            [job] = queue.claim()
            state = queue.nack(job, delay_ms=0, error=ValueError("boom")).state
        return state

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


class TestQ7Submit:
    def test_failed_is_terminal_and_no_dead_letter(self, clock: engine_clock.Clock) -> None:
        queue = codeq()
        queue.enqueue(1, key="k")
        assert queue.fail(queue.claim()[0], ValueError("no use")).state == "failed"
        clock.advance(hours=1)
        assert queue.claim() == []
        assert queue.counts().dead == 0
        assert queue.list_jobs("dead").jobs == []
        status = queue.get_status("k")
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
        queue.resume()
        assert queue.purge() == 3
        assert queue.counts().ready == 0

    def test_all_of_an_enqueue_or_nothing(self) -> None:
        queue = codeq()
        with pytest.raises(InvalidOption):
            queue.enqueue_many([1, 2, float("inf")])
        assert queue.counts().ready == 0 if queue.info() else True

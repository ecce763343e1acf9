"""The Python door as a queue model, by its preset ``codeq``."""

from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import Queue
from django_leasequeue.exceptions import InvalidOption, JobNotFound
from django_leasequeue.models import JobResult

pytestmark = pytest.mark.django_db


def codeq(name: str = "work", **options: Any) -> Queue:
    return Queue(name, preset="codeq", node="worker-1", **options)


class TestSubmit:
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
        assert (queue.get_result("done"), JobResult.objects.count()) == ({"answer": 42}, 2)

    def test_another_end_is_refused_and_another_holder_gets_no_record(self) -> None:
        queue = codeq()
        queue.enqueue(1, key="k")
        [job] = queue.claim()
        queue.ack(job, 1)
        for call, end in (
            (queue.fail, (job, "changed my mind")),
            (queue.nack, (job,)),
            (queue.ack, (type(job)(job.lease, "worker-2"), 1)),
        ):
            with pytest.raises(JobNotFound):
                call(*end)
        assert queue.get_result("k") == 1


class TestTenants:
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
    def test_compares_by_what_it_names_and_refuses_bad_names_and_options_and_what_is_no_job(self) -> None:
        for arguments in ({"name": ""}, {"name": "a b"}, {"name": "a", "preset": "nope"}, {"name": "a", "lease": 1}):
            with pytest.raises(InvalidOption):
                Queue(**arguments)
        queue = codeq()
        for call in (queue.ack, queue.nack, queue.extend):
            with pytest.raises(InvalidOption, match="the ClaimedJob that claim returned"):
                call("k")
        with pytest.raises(InvalidOption, match="named by"):
            queue.cancel(1.5)
        assert Queue("a") == Queue("a", preset="codeq")
        assert len({Queue("a"), Queue("a"), Queue("a", project="p"), Queue("b")}) == 3
        assert repr(Queue("a", project="p")) == "Queue('a', project='p')"

    def test_jobs_never_change_and_their_times_are_utc(self) -> None:
        queue = codeq()
        queue.enqueue({"a": 1}, key="k")
        [job] = queue.claim()
        with pytest.raises(AttributeError):
            job.node = "somebody"  # type: ignore[misc]  # what is tested
        extended = queue.extend(job, 600_000)
        assert extended.deadline > job.deadline
        assert extended.token == job.token
        status = queue.get_status("k")
        for value in (job.created_at, job.claimed_at, job.deadline, status.created_at, status.claimed_at):
            assert value.utcoffset() == timedelta(0)

    def test_many_at_once(self) -> None:
        queue = codeq()
        receipts = queue.enqueue_many(range(5))
        assert [receipt.status for receipt in receipts] == ["queued"] * 5
        jobs = queue.claim(5)
        assert queue.extend_many(jobs[:2], 60_000).ok == [job.seq for job in jobs[:2]]
        with pytest.raises(InvalidOption, match="one result for each of the 3 jobs, not 2"):
            queue.ack_many(jobs[:3], [1, 2])
        assert queue.ack_many(jobs[:3], [{"n": 0}, None, 2]).ok == [job.seq for job in jobs[:3]]
        assert [queue.get_result(job.seq) for job in jobs[:3]] == [{"n": 0}, None, 2]
        assert queue.nack_many(jobs[3:], unstarted=True).ok == [job.seq for job in jobs[3:]]
        outcomes = [outcome.value for outcome in queue.ack_many(jobs).outcomes.values()]
        assert outcomes == ["not_found"] * 3 + ["not_held"] * 2
        assert [job.deliveries for job in queue.claim(5)] == [1, 1]

"""jqueue's names on PostgreSQL: its examples with the name of a queue in the storage's place."""

import asyncio
import pickle
from datetime import timedelta

import pytest

from django_leasequeue import Queue
from django_leasequeue.compat import jqueue
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import InvalidOption
from tests.compat.conftest import one_held
from tests.support.waiting import aeventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("native", "closed_pools")]


class TestExamples:
    async def test_error_handling(self, q: jqueue.DirectQueue) -> None:
        job = await one_held(q)
        await q.ack(job.id)
        with pytest.raises(jqueue.JobNotFoundError) as caught:
            await q.ack(job.id)
        assert caught.value.job_id == job.id
        assert isinstance(caught.value, jqueue.JQueueError)
        assert issubclass(jqueue.StorageError, jqueue.JQueueError)
        assert issubclass(jqueue.CASConflictError, jqueue.JQueueError)


class TestJobs:
    async def test_of_a_snapshot(self, q: jqueue.DirectQueue, clock: Clock) -> None:
        first = await q.enqueue("a", b"1", priority=1)
        second = await q.enqueue("b", b"2", priority=2)
        third = await q.enqueue("b", b"3", priority=1)
        [held] = await q.dequeue("a")
        clock.advance(seconds=20)
        await q.heartbeat(held.id)
        state = await q.read_state()
        assert [job.id for job in state.jobs] == [third.id, second.id, first.id]
        assert [job.payload for job in state.queued_jobs("b")] == [b"3", b"2"]
        assert state.queued_jobs("a") == ()
        shown = state.find(first.id)
        assert (shown.status, shown.heartbeat_at, shown.priority) == (jqueue.JobStatus.IN_PROGRESS, clock.now, 1)
        assert state.find("nobody") is None

    async def test_large_snapshots_come_in_several_statements(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from django_leasequeue.engine.jobs import read

        monkeypatch.setattr(read, "MAX_PAGE_BYTES", 100)
        q = jqueue.DirectQueue("jobs")
        for number in range(7):
            await q.enqueue("task", bytes([number]) * 60)
        assert [job.payload[0] for job in (await q.read_state()).jobs] == list(range(7))


class TestLeases:
    async def test_an_id_as_text_is_the_lease_of_this_process(self, q: jqueue.DirectQueue) -> None:
        job = await one_held(q)
        await q.heartbeat(str(job.id))
        await q.nack(str(job.id))
        assert len((await q.read_state()).queued_jobs()) == 1
        [job] = await q.dequeue()
        await q.ack(str(job.id))
        assert (await q.read_state()).jobs == ()

    async def test_an_id_as_text_is_the_lease_of_another_queue(self, q: jqueue.DirectQueue) -> None:
        await q.enqueue("task", b"1")
        [job] = await jqueue.DirectQueue(Queue("jobs", node="elsewhere")).dequeue()
        await q.ack(str(job.id))
        assert (await q.read_state()).jobs == ()

    async def test_ids_are_copied_with_their_lease(self, q: jqueue.DirectQueue) -> None:
        job = await one_held(q)
        await q.ack(pickle.loads(pickle.dumps(job.id)))


class Double:
    """Stands for a queue: tells how often it was called, and raises what it is given."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def heartbeat(self, job_id: str) -> None:
        self.calls += 1
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


class TestHeartbeatManager:
    async def test_beats_while_the_database_is_away_too_and_stops_on_exit(self) -> None:
        queue = Double(jqueue.StorageError("away"), jqueue.StorageError("away"))
        async with jqueue.HeartbeatManager(queue, "id", interval=timedelta(milliseconds=1)) as heart:
            await aeventually(lambda: queue.calls >= 4)
        before = queue.calls
        await asyncio.sleep(0.02)
        assert queue.calls == before
        assert not heart.lost

    async def test_a_lost_job_ends_it_silently(self) -> None:
        queue = Double(None, jqueue.JobNotFoundError("id"))
        async with jqueue.HeartbeatManager(queue, "id", interval=timedelta(milliseconds=1)) as heart:
            await aeventually(lambda: heart.lost)
        assert queue.calls == 2

    def test_the_interval_is_a_positive_time(self) -> None:
        with pytest.raises(InvalidOption, match="interval"):
            jqueue.HeartbeatManager(Double(), "id", interval=timedelta(0))


def test_names_of_jqueue_by_themselves() -> None:
    assert jqueue.QueueState() == jqueue.QueueState((), 0)
    job = jqueue.Job.new("mail", b"x", 3)
    assert (job.entrypoint, job.payload, job.status, job.priority) == ("mail", b"x", jqueue.JobStatus.QUEUED, 3)
    assert job.id != jqueue.Job.new("mail", b"x").id
    assert jqueue.BrokerQueue("jobs", timedelta(minutes=1)).lease_ms == 60_000
    assert not issubclass(jqueue.CASConflictError, jqueue.StorageError)

"""When a job of ``compat.jqueue`` comes back, and whose call counts afterwards."""

from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import Queue
from django_leasequeue.compat import jqueue_values
from django_leasequeue.compat.jqueue import BrokerQueue, DirectQueue, JobNotFoundError
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import LeaseLost
from django_leasequeue.queue.enqueue import CancelStatus
from tests.compat.conftest import one_held

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("native", "closed_pools")]

SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))


@pytest.fixture(autouse=True)
def _forget_leases() -> None:
    jqueue_values._of_process.clear()


def opened(kind: type[DirectQueue], **options: Any) -> AbstractAsyncContextManager[DirectQueue]:
    queue = kind("jobs", **options)
    return queue if isinstance(queue, BrokerQueue) else nullcontext(queue)


both = pytest.mark.parametrize("kind", [DirectQueue, BrokerQueue])


class TestStaleTimeout:
    async def test_a_brokers_own_counts_for_the_jobs_of_a_direct_queue(self, clock: Clock) -> None:
        direct = DirectQueue("jobs", stale_timeout=None)
        late = await one_held(direct)
        async with BrokerQueue("jobs", stale_timeout=30 * SECOND) as broker:
            clock.advance(seconds=29)
            assert await broker.dequeue() == []
            clock.advance(seconds=2)
            [held] = await broker.dequeue()
            assert held.id == late.id
            with pytest.raises(JobNotFoundError):
                await direct.ack(late.id)
            await broker.ack(held.id)

    async def test_a_heartbeat_makes_the_job_of_another_queue_young(self, clock: Clock) -> None:
        direct = DirectQueue("jobs", stale_timeout=HOUR)
        job = await one_held(direct)
        async with BrokerQueue("jobs", stale_timeout=30 * SECOND) as broker:
            clock.advance(seconds=20)
            await direct.heartbeat(job.id)
            clock.advance(seconds=20)
            assert await broker.dequeue() == []
            clock.advance(seconds=20)
            assert [found.id for found in await broker.dequeue()] == [job.id]

    async def test_a_direct_queue_sweeps_nobody_elses_jobs(self, clock: Clock) -> None:
        async with BrokerQueue("jobs", stale_timeout=HOUR) as broker:
            await one_held(broker)
        clock.advance(minutes=30)
        assert await DirectQueue("jobs", stale_timeout=MINUTE).dequeue() == []

    @both
    @pytest.mark.parametrize("days", [3, 400])
    async def test_days(self, kind: type[DirectQueue], days: int, clock: Clock) -> None:
        async with opened(kind, stale_timeout=days * DAY) as q:
            job = await one_held(q)
            clock.advance(days=days, minutes=-1)
            assert await q.dequeue() == []
            await q.heartbeat(job.id)
            clock.advance(days=days, minutes=-1)
            assert await q.dequeue() == []
            clock.advance(minutes=2)
            assert [found.id for found in await q.dequeue()] == [job.id]

    async def test_never(self, clock: Clock) -> None:
        q = DirectQueue("jobs", stale_timeout=None)
        await one_held(q)
        clock.advance(days=4_000)
        assert await q.dequeue() == []
        assert await q.requeue_stale(5_000 * DAY) == 0
        assert await q.requeue_stale(3_000 * DAY) == 1

    async def test_nothing_at_all(self, clock: Clock) -> None:
        direct = DirectQueue("jobs")
        await one_held(direct)
        async with BrokerQueue("jobs", stale_timeout=timedelta(0)) as broker:
            for _ in range(3):
                clock.advance(milliseconds=1)
                assert len(await broker.dequeue()) == 1

    async def test_sweeps_are_not_made_for_every_call(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        swept: list[timedelta] = []

        async def requeue_stale(self: BrokerQueue, timeout: timedelta) -> int:  # noqa: ASYNC109
            swept.append(timeout)
            return 0

        monkeypatch.setattr(BrokerQueue, "requeue_stale", requeue_stale)
        async with BrokerQueue("jobs") as broker:
            for _ in range(5):
                await broker.dequeue()
            assert swept == [5 * MINUTE]
            clock.advance(seconds=1)
            await broker.dequeue()
            assert swept == [5 * MINUTE] * 2


class TestLate:
    @both
    async def test_what_nobody_overtook_is_accepted(self, kind: type[DirectQueue], clock: Clock) -> None:
        async with opened(kind, stale_timeout=10 * SECOND) as q:
            job = await one_held(q)
            clock.advance(minutes=1)
            await q.heartbeat(job.id)
            assert await q.dequeue() == []
            clock.advance(minutes=1)
            await q.ack(job.id)
            assert (await q.read_state()).jobs == ()

    @both
    async def test_also_when_the_job_is_queued_again(self, kind: type[DirectQueue], clock: Clock) -> None:
        async with opened(kind) as q:
            job = await one_held(q)
            clock.advance(minutes=1)
            assert await q.requeue_stale(SECOND) == 1
            await q.heartbeat(job.id)
            await q.nack(job.id)
            assert len((await q.read_state()).queued_jobs()) == 1
            await q.ack(job.id)
            assert (await q.read_state()).jobs == ()
            with pytest.raises(JobNotFoundError):
                await q.ack(job.id)

    @pytest.mark.parametrize("text", [False, True], ids=["id", "text"])
    async def test_the_first_holder_never_ends_the_second(self, text: bool, clock: Clock) -> None:
        first, second = (DirectQueue("jobs", stale_timeout=10 * SECOND) for _ in range(2))
        late = await one_held(first)
        clock.advance(seconds=11)
        [held] = await second.dequeue()
        job_id = str(late.id) if text else late.id
        for call in (first.ack, first.nack, first.heartbeat):
            with pytest.raises(LeaseLost):
                await call(job_id)
        await second.ack(str(held.id) if text else held.id)
        with pytest.raises(JobNotFoundError):
            await first.ack(job_id)

    async def test_memory_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jqueue_values, "MAX_REMEMBERED", 2)
        q = DirectQueue("jobs")
        for _ in range(4):
            await q.enqueue("task", b"1")
        jobs = await q.dequeue(batch_size=4)
        assert len(jqueue_values._of_process) == len(q._leases._own) == 2
        for job in jobs:
            await q.ack(str(job.id))
        assert not jqueue_values._of_process
        assert not q._leases._own


class TestQueuedJobs:
    @both
    async def test_ack_nack_and_heartbeat(self, kind: type[DirectQueue]) -> None:
        async with opened(kind) as q:
            first, second = await q.enqueue("task", b"1"), await q.enqueue("task", b"2")
            for job_id in (first.id, str(second.id)):
                await q.heartbeat(job_id)
                await q.nack(job_id)
            assert [job.payload for job in (await q.read_state()).queued_jobs()] == [b"1", b"2"]
            await q.ack(first.id)
            await q.ack(str(second.id))
            assert (await q.read_state()).jobs == ()
            for call in (q.ack, q.nack, q.heartbeat):
                with pytest.raises(JobNotFoundError):
                    await call(first.id)

    async def test_jobs_without_a_key_are_named_by_number(self) -> None:
        queue = Queue("jobs", preset="jqueue")
        await queue.aenqueue(b"1", name="task", tag="task")
        q = DirectQueue(queue)
        [shown] = (await q.read_state()).jobs
        await q.heartbeat(str(shown.id))
        [job] = await q.dequeue("task")
        assert job.id == shown.id
        await DirectQueue("jobs").ack(str(job.id))
        assert (await q.read_state()).jobs == ()

    @both
    @pytest.mark.parametrize("job_id", ["nobody", "", "a\x00b", "\ud800", "x" * 2_000, "12", "9" * 30, None, 5, []])
    async def test_ids_that_nobody_has(self, kind: type[DirectQueue], job_id: Any) -> None:
        async with opened(kind) as q:
            await q.enqueue("task", b"1")
            for call in (q.ack, q.nack, q.heartbeat):
                with pytest.raises(JobNotFoundError) as caught:
                    await call(job_id)
                assert caught.value.job_id == job_id

    async def test_a_claim_at_the_same_time_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        q, other = DirectQueue("jobs"), DirectQueue(Queue("jobs", preset="jqueue", node="elsewhere"))
        [late] = [await q.enqueue("task", b"1")]
        await q.dequeue()
        await q.nack(late.id)
        cancel = q.queue.acancel

        async def claimed_first(job: Any) -> CancelStatus:
            await other.dequeue()
            return await cancel(job)

        monkeypatch.setattr(q.queue, "acancel", claimed_first)
        with pytest.raises(LeaseLost):
            await q.ack(str(late.id))
        assert len((await q.read_state()).in_progress_jobs()) == 1

"""jqueue's names on PostgreSQL: what they keep and refuse, when a job comes back, and whose call counts afterwards."""

import asyncio
import base64
import json
import pickle
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from django_leasequeue import NewJob, Queue
from django_leasequeue.compat import jqueue, jqueue_values
from django_leasequeue.compat.jqueue import LARGE_BYTES, BrokerQueue, DirectQueue, Job, JobNotFoundError, JQueueError
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.jobs import read
from django_leasequeue.exceptions import InvalidOption, LeaseLost, PayloadTooLarge, QueueClosed
from django_leasequeue.queue.enqueue import CancelStatus
from tests.compat.conftest import one_held, opened
from tests.support.waiting import aeventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("native", "closed_pools")]

SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))
MIB = 1024 * 1024

both = pytest.mark.parametrize("kind", [DirectQueue, BrokerQueue])


@pytest.fixture(autouse=True)
def _forget_leases() -> None:
    jqueue_values._of_process.clear()


class TestPayloads:
    @pytest.mark.slow
    async def test_up_to_16_mib(self, q: DirectQueue) -> None:
        assert jqueue_values.MAX_PAYLOAD_BYTES == 16 * MIB
        payload = bytes(range(256)) * (16 * MIB // 256)
        await q.enqueue("task", payload)
        assert (await q.read_state()).jobs[0].payload == payload
        [job] = await q.dequeue("task")
        assert job.payload == payload
        assert job.id.lease.lease.body is None  # type: ignore[attr-defined]  # ids are small
        with pytest.raises(PayloadTooLarge, match="16777216"):
            await q.enqueue("task", payload + b"1")

    @pytest.mark.slow
    async def test_more_where_the_settings_allow_it(self, settings: Any) -> None:
        settings.LEASEQUEUE = {"ASYNC": "native", "MAX_PAYLOAD_BYTES": 17 * MIB}
        q = DirectQueue("jobs")
        await q.enqueue("task", b"1" * 17 * MIB)
        with pytest.raises(PayloadTooLarge, match="17825792"):
            await q.enqueue("task", b"1" * (17 * MIB + 1))

    async def test_a_batch_of_more_than_one_answer_holds(self, q: DirectQueue) -> None:
        payloads = [bytes([number]) * 9 * MIB for number in range(3)]
        for payload in payloads:
            await q.enqueue("task", payload)
        assert [job.payload for job in await q.dequeue(batch_size=5)] == payloads

    async def test_text_is_base64(self, q: DirectQueue) -> None:
        job = await q.enqueue("task", base64.b64encode(b"\x00\xff").decode())
        assert job.payload == b"\x00\xff"
        assert [job.payload for job in await q.dequeue()] == [b"\x00\xff"]
        for text in ("not base64!", "YQ", "ä"):
            with pytest.raises(JQueueError, match="base64"):
                await q.enqueue("task", text)


class TestPriorities:
    async def test_are_kept(self, q: DirectQueue) -> None:
        for priority in (32_767, -32_767, 300, 0):
            assert (await q.enqueue("task", b"1", priority)).priority == priority
        assert [job.priority for job in (await q.read_state()).jobs] == [-32_767, 0, 300, 32_767]
        assert [job.priority for job in await q.dequeue(batch_size=4)] == [-32_767, 0, 300, 32_767]

    @pytest.mark.parametrize(("options", "good", "bad"), [
        ({"priority_order": "asc", "priority_min": -5, "priority_max": 5}, 5, 6),
        ({"priority_order": "desc"}, 0, 1),
        ({"priority_order": "none"}, 0, -1),
    ])  # fmt: skip
    async def test_by_the_rules_of_the_queue(self, options: dict[str, Any], good: int, bad: int) -> None:
        for there in (False, True):
            q = DirectQueue(Queue("jobs", **options))
            with pytest.raises(JQueueError, match="priority_order"):
                await q.enqueue("task", b"1", bad)
            assert len((await q.read_state()).jobs) == int(there)
            await q.enqueue("task", b"1", good)


async def test_a_batch_of_more_than_one_claim(q: DirectQueue) -> None:
    jobs = [NewJob(body=str(number).encode(), tag="task", name="task") for number in range(1_500)]
    await q.queue.aenqueue_many(jobs)
    found = await q.dequeue("task", batch_size=5_000)
    assert [int(job.payload) for job in found] == list(range(1_500))
    assert await q.dequeue(batch_size=0) == []


class TestSnapshots:
    async def test_of_a_snapshot(self, q: DirectQueue, clock: Clock) -> None:
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
        monkeypatch.setattr(read, "MAX_PAGE_BYTES", 100)
        q = DirectQueue("jobs")
        for number in range(7):
            await q.enqueue("task", bytes([number]) * 60)
        assert [job.payload[0] for job in (await q.read_state()).jobs] == list(range(7))

    async def test_say_whether_they_are_complete_and_are_bounded(self, q: DirectQueue, settings: Any) -> None:
        for number in range(3):
            await q.enqueue("task", bytes([number]))
        assert [job.payload[0] for job in (await q.read_state(2)).jobs] == [0, 1]
        for held in (False, True):
            if held:
                await q.dequeue(batch_size=3)
            states = [await q.read_state(size) for size in (3, 2)]
            assert [(len(state.jobs), state.complete) for state in states] == [(3, True), (2, False)], held
        assert (await q.read_state()).complete
        settings.LEASEQUEUE = {"ASYNC": "native", "MAX_PAGE": 2}
        state = await q.read_state()
        assert (len(state.jobs), state.complete) == (2, False)
        for size in (3, 0, "1"):
            with pytest.raises(JQueueError, match="size"):
                await q.read_state(size)  # type: ignore[arg-type]  # on purpose

    async def test_heartbeats_of_leases_of_any_length(self, clock: Clock) -> None:
        q, other = DirectQueue("jobs", stale_timeout=timedelta(days=3)), DirectQueue("jobs")
        job = await one_held(q)
        assert (await other.read_state()).jobs[0].heartbeat_at == clock.now
        clock.advance(minutes=7)
        await q.heartbeat(job.id)
        beat = clock.now
        clock.advance(minutes=1)
        assert (await other.read_state()).jobs[0].heartbeat_at == beat


class TestEntrypoints:
    NAMES = ("", "a", "x" * 256, "x" * 257, "ü" * 128, "ü" * 129, "x" * 1_024, "x" * 1_025, "y" * 5_000)

    async def test_of_any_length(self, q: DirectQueue) -> None:
        for number, name in enumerate(self.NAMES):
            assert (await q.enqueue(name, bytes([number]))).entrypoint == name
        assert [job.entrypoint for job in (await q.read_state()).jobs] == list(self.NAMES)
        for number, name in enumerate(self.NAMES):
            [job] = await q.dequeue(name, batch_size=2)
            assert (job.entrypoint, job.payload) == (name, bytes([number]))
            await q.nack(job.id)
        assert [job.entrypoint for job in await q.dequeue(batch_size=20)] == list(self.NAMES)


class TestLeases:
    async def test_an_id_as_text_or_a_copy_of_it_is_the_lease_of_this_process(self, q: DirectQueue) -> None:
        job = await one_held(q)
        await q.heartbeat(str(job.id))
        await q.nack(str(job.id))
        assert len((await q.read_state()).queued_jobs()) == 1
        [job] = await q.dequeue()
        await q.ack(str(job.id))
        another = await one_held(q)
        await q.ack(pickle.loads(pickle.dumps(another.id)))
        assert (await q.read_state()).jobs == ()

    async def test_an_id_as_text_is_the_lease_of_another_queue(self, q: DirectQueue) -> None:
        await q.enqueue("task", b"1")
        [job] = await DirectQueue(Queue("jobs", node="elsewhere")).dequeue()
        await q.ack(str(job.id))
        assert (await q.read_state()).jobs == ()


class TestStaleTimeout:
    async def test_a_brokers_own_counts_for_the_jobs_of_a_direct_queue(self, clock: Clock) -> None:
        direct = DirectQueue("jobs", stale_timeout=None)
        late = await one_held(direct)
        async with BrokerQueue("jobs", stale_timeout=30 * SECOND) as broker:
            clock.advance(seconds=29)
            assert await broker.dequeue() == []
            await direct.heartbeat(late.id)  # which makes it young again
            clock.advance(seconds=29)
            assert await broker.dequeue() == []
            clock.advance(seconds=2)
            [held] = await broker.dequeue()
            assert held.id == late.id
            with pytest.raises(JobNotFoundError):
                await direct.ack(late.id)
            await broker.ack(held.id)

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
        swept = AsyncMock(return_value=0)
        monkeypatch.setattr(BrokerQueue, "requeue_stale", swept)
        async with BrokerQueue("jobs") as broker:
            for _ in range(5):
                await broker.dequeue()
            assert [awaited.args for awaited in swept.await_args_list] == [(5 * MINUTE,)]
            clock.advance(seconds=1)
            await broker.dequeue()
            assert [awaited.args for awaited in swept.await_args_list] == [(5 * MINUTE,)] * 2


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

    async def test_also_when_the_job_is_queued_again(self, q: DirectQueue, clock: Clock) -> None:
        job = await one_held(q)
        clock.advance(minutes=1)
        assert await q.requeue_stale(SECOND) == 1
        await q.heartbeat(job.id)
        await q.nack(job.id)
        assert len((await q.read_state()).queued_jobs()) == 1
        await q.ack(job.id)
        assert (await q.read_state()).jobs == ()
        with pytest.raises(JobNotFoundError) as caught:
            await q.ack(job.id)
        assert caught.value.job_id == job.id

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
    async def test_ack_nack_and_heartbeat(self, q: DirectQueue) -> None:
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

    async def test_ids_that_nobody_has(self, q: DirectQueue) -> None:
        await q.enqueue("task", b"1")
        for job_id in ("nobody", "", "a\x00b", "\ud800", "x" * 2_000, "12", "9" * 30, None, 5, []):
            for call in (q.ack, q.nack, q.heartbeat):
                with pytest.raises(JobNotFoundError) as caught:
                    await call(job_id)
                assert caught.value.job_id == job_id

    async def test_a_claim_at_the_same_time_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        q, other = DirectQueue("jobs"), DirectQueue(Queue("jobs", preset="jqueue", node="elsewhere"))
        late = await one_held(q)
        await q.nack(late.id)
        cancel = q.queue.acancel

        async def claimed_first(job: Any) -> CancelStatus:
            await other.dequeue()
            return await cancel(job)

        monkeypatch.setattr(q.queue, "acancel", claimed_first)
        with pytest.raises(LeaseLost):
            await q.ack(str(late.id))
        assert len((await q.read_state()).in_progress_jobs()) == 1


def beaten(*errors: Exception | None) -> Mock:
    """Stands for a queue: raises what it is given, beat by beat."""
    return Mock(heartbeat=AsyncMock(side_effect=chain(errors, repeat(None))))


class TestHeartbeatManager:
    async def test_beats_while_the_database_is_away_too_and_stops_on_exit(self) -> None:
        queue = beaten(jqueue.StorageError("away"), jqueue.StorageError("away"))
        async with jqueue.HeartbeatManager(queue, "id", interval=timedelta(milliseconds=1)) as heart:
            await aeventually(lambda: queue.heartbeat.await_count >= 4)
        before = queue.heartbeat.await_count
        await asyncio.sleep(0.02)
        assert queue.heartbeat.await_count == before
        assert not heart.lost

    async def test_a_lost_job_ends_it_silently(self) -> None:
        queue = beaten(None, JobNotFoundError("id"))
        async with jqueue.HeartbeatManager(queue, "id", interval=timedelta(milliseconds=1)) as heart:
            await aeventually(lambda: heart.lost)
        assert queue.heartbeat.await_count == 2

    def test_the_interval_is_a_positive_time(self) -> None:
        with pytest.raises(InvalidOption, match="interval"):
            jqueue.HeartbeatManager(beaten(), "id", interval=timedelta(0))


def test_names_of_jqueue_by_themselves() -> None:
    assert jqueue.QueueState() == jqueue.QueueState((), 0)
    job = Job.new("mail", b"x", 3)
    assert (job.entrypoint, job.payload, job.status, job.priority) == ("mail", b"x", jqueue.JobStatus.QUEUED, 3)
    assert job.id != Job.new("mail", b"x").id
    assert BrokerQueue("jobs", timedelta(minutes=1)).lease_ms == 60_000
    assert not issubclass(jqueue.CASConflictError, jqueue.StorageError)
    assert issubclass(jqueue.CASConflictError, JQueueError)
    assert issubclass(jqueue.StorageError, JQueueError)
    assert issubclass(JobNotFoundError, JQueueError)


class TestDumps:
    JOB = Job(
        "an-id", "täsk", b"\x00\xff", jqueue.JobStatus.IN_PROGRESS, 3, datetime(2030, 1, 1, 12, tzinfo=UTC),
        datetime(2030, 1, 1, 12, 0, 0, 5, tzinfo=UTC),
    )  # fmt: skip

    def test_of_a_job_and_of_a_snapshot(self) -> None:
        assert self.JOB.model_dump() == {
            "id": "an-id", "entrypoint": "täsk", "payload": "AP8=", "status": self.JOB.status, "priority": 3,
            "created_at": self.JOB.created_at, "heartbeat_at": self.JOB.heartbeat_at,
        }  # fmt: skip
        assert self.JOB.model_dump_json() == (
            '{"id":"an-id","entrypoint":"täsk","payload":"AP8=","status":"in_progress","priority":3,'
            '"created_at":"2030-01-01T12:00:00Z","heartbeat_at":"2030-01-01T12:00:00.000005Z"}'
        )
        assert json.loads(self.JOB.model_dump_json(indent=2)) == self.JOB.model_dump(mode="json")
        with pytest.raises(JQueueError, match="mode"):
            self.JOB.model_dump(mode="text")
        state = jqueue.QueueState((self.JOB,), 7, complete=False)
        assert state.model_dump() == {"jobs": (self.JOB.model_dump(),), "version": 7, "complete": False}
        assert json.loads(state.model_dump_json()) == {
            "jobs": [self.JOB.model_dump(mode="json")], "version": 7, "complete": False,
        }  # fmt: skip


def each(call: Any, *values: Any) -> list[tuple[Any, Any]]:
    return [(call, value) for value in values]


@pytest.mark.parametrize(("says", "calls"), [
    ("priority", each(lambda q, it: q.enqueue("task", b"1", it), 32_768, -32_768, 10**30, True, "5", 1.0, None)),
    ("bytes", each(lambda q, it: q.enqueue("task", it), bytearray(b"1"), None, {"a": 1})),
    ("entrypoint", each(lambda q, it: q.enqueue(it, b"1"), None, 5, b"task", "a\x00b", "\ud800")),
    ("entrypoint", each(lambda q, it: q.dequeue(it), 5, b"task", "a\x00b", "\ud800")),
    ("batch_size", each(lambda q, it: q.dequeue(batch_size=it), -1, 1.5, "3", None, True)),
    ("timeout", each(lambda q, it: q.requeue_stale(it), timedelta(seconds=-1), 5, None)),
    ("stale_timeout", each(lambda q, it: type(q)("a", stale_timeout=it), -timedelta(1), 300, timedelta.max)),
    ("stale_timeout", each(lambda q, it: BrokerQueue("a", stale_timeout=it), None)),
    ("PostgreSQL", each(lambda q, it: type(q)(it), object(), None, b"jobs")),
])  # fmt: skip
async def test_bad_input(q: DirectQueue, says: str, calls: list[tuple[Any, Any]]) -> None:
    for call, value in calls:
        with pytest.raises(JQueueError, match=says):
            await call(q, value)
    assert (await q.read_state()).jobs == ()
    assert await DirectQueue("nowhere").requeue_stale(timedelta(0)) == 0


@pytest.mark.parametrize("size", [1, LARGE_BYTES + 1])
async def test_outside_of_the_block(size: int) -> None:
    with pytest.raises(QueueClosed):
        await BrokerQueue("jobs").enqueue("task", b"1" * size)

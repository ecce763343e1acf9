"""What ``compat.jqueue`` keeps, what it refuses, and how its values are written out."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_leasequeue import NewJob, Queue
from django_leasequeue.compat.jqueue import BrokerQueue, DirectQueue, Job, JobStatus, JQueueError, QueueState
from django_leasequeue.compat.jqueue_direct import LARGE_BYTES
from django_leasequeue.compat.jqueue_values import MAX_PAYLOAD_BYTES
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import PayloadTooLarge, QueueClosed
from tests.compat.conftest import one_held

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("native", "closed_pools")]

MIB = 1024 * 1024


class TestPayloads:
    @pytest.mark.slow
    async def test_up_to_16_mib(self, q: DirectQueue) -> None:
        assert MAX_PAYLOAD_BYTES == 16 * MIB
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

    @pytest.mark.parametrize(
        ("options", "good", "bad"),
        [
            ({"priority_order": "asc", "priority_min": -5, "priority_max": 5}, 5, 6),
            ({"priority_order": "desc"}, 0, 1),
            ({"priority_order": "none"}, 0, -1),
        ],
    )
    async def test_by_the_rules_of_the_queue(self, options: dict[str, Any], good: int, bad: int) -> None:
        for there in (False, True):
            q = DirectQueue(Queue("jobs", **options))
            with pytest.raises(JQueueError, match="priority_order"):
                await q.enqueue("task", b"1", bad)
            assert len((await q.read_state()).jobs) == int(there)
            await q.enqueue("task", b"1", good)


class TestBatches:
    async def test_of_more_than_one_claim(self, q: DirectQueue) -> None:
        jobs = [NewJob(body=str(number).encode(), tag="task", name="task") for number in range(1_500)]
        await q.queue.aenqueue_many(jobs)
        found = await q.dequeue("task", batch_size=5_000)
        assert [int(job.payload) for job in found] == list(range(1_500))
        assert await q.dequeue(batch_size=0) == []


class TestSnapshots:
    async def test_say_whether_they_are_complete(self, q: DirectQueue) -> None:
        for number in range(3):
            await q.enqueue("task", bytes([number]))
        assert (await q.read_state(3)).complete
        assert not (await q.read_state(2)).complete
        assert [job.payload[0] for job in (await q.read_state(2)).jobs] == [0, 1]
        await q.dequeue(batch_size=3)
        assert (await q.read_state(3)).complete
        assert not (await q.read_state(2)).complete
        assert len((await q.read_state(2)).jobs) == 2
        assert (await q.read_state()).complete

    async def test_their_size_is_bounded_by_the_settings(self, settings: Any) -> None:
        settings.LEASEQUEUE = {"ASYNC": "native", "MAX_PAGE": 2}
        q = DirectQueue("jobs")
        for number in range(3):
            await q.enqueue("task", bytes([number]))
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


class TestDumps:
    JOB = Job(
        "an-id", "täsk", b"\x00\xff", JobStatus.IN_PROGRESS, 3, datetime(2030, 1, 1, 12, tzinfo=UTC),
        datetime(2030, 1, 1, 12, 0, 0, 5, tzinfo=UTC),
    )  # fmt: skip

    def test_of_a_job(self) -> None:
        assert self.JOB.model_dump() == {
            "id": "an-id", "entrypoint": "täsk", "payload": "AP8=", "status": JobStatus.IN_PROGRESS, "priority": 3,
            "created_at": self.JOB.created_at, "heartbeat_at": self.JOB.heartbeat_at,
        }  # fmt: skip
        assert self.JOB.model_dump_json() == (
            '{"id":"an-id","entrypoint":"täsk","payload":"AP8=","status":"in_progress","priority":3,'
            '"created_at":"2030-01-01T12:00:00Z","heartbeat_at":"2030-01-01T12:00:00.000005Z"}'
        )
        assert json.loads(self.JOB.model_dump_json(indent=2)) == self.JOB.model_dump(mode="json")
        with pytest.raises(JQueueError, match="mode"):
            self.JOB.model_dump(mode="text")

    def test_of_a_snapshot(self) -> None:
        state = QueueState((self.JOB,), 7, complete=False)
        assert state.model_dump() == {"jobs": (self.JOB.model_dump(),), "version": 7, "complete": False}
        assert json.loads(state.model_dump_json()) == {
            "jobs": [self.JOB.model_dump(mode="json")], "version": 7, "complete": False,
        }  # fmt: skip


def each(call: Any, *values: Any) -> list[tuple[Any, Any]]:
    return [(call, value) for value in values]


@pytest.mark.parametrize(
    ("says", "calls"),
    [
        ("priority", each(lambda q, it: q.enqueue("task", b"1", it), 32_768, -32_768, 10**30, True, "5", 1.0, None)),
        ("bytes", each(lambda q, it: q.enqueue("task", it), bytearray(b"1"), None, {"a": 1})),
        ("entrypoint", each(lambda q, it: q.enqueue(it, b"1"), None, 5, b"task", "a\x00b", "\ud800")),
        ("entrypoint", each(lambda q, it: q.dequeue(it), 5, b"task", "a\x00b", "\ud800")),
        ("batch_size", each(lambda q, it: q.dequeue(batch_size=it), -1, 1.5, "3", None, True)),
        ("timeout", each(lambda q, it: q.requeue_stale(it), timedelta(seconds=-1), 5, None)),
        ("stale_timeout", each(lambda q, it: type(q)("a", stale_timeout=it), -timedelta(1), 300, timedelta.max)),
        ("stale_timeout", each(lambda q, it: BrokerQueue("a", stale_timeout=it), None)),
        ("PostgreSQL", each(lambda q, it: type(q)(it), object(), None, b"jobs")),
    ],
)
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

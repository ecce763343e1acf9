"""The Python door as an async queue, by its preset ``jqueue``."""

import asyncio
import itertools
import time
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_leasequeue import BufferedQueue, Heartbeat, Queue, engine, exceptions
from django_leasequeue.engine import AsyncConnectionExecutor
from django_leasequeue.exceptions import InvalidOption, JobNotFound, LeaseLost, QueueClosed, StorageError
from django_leasequeue.models import StoredJob as JobRow
from tests.support.threads import ThreadResult, in_thread
from tests.support.waiting import aeventually


def jqueue(name: str = "jobs", node: str = "worker-1", **options: Any) -> Queue:
    return Queue(name, preset="jqueue", node=node, **options)


@pytest.mark.django_db(transaction=True)
class TestVersion:
    def test_a_snapshot_takes_no_lock(self) -> None:
        queue = jqueue()
        receipt = queue.enqueue(1)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE leasequeue_job IN EXCLUSIVE MODE")
            with ThreadResult(lambda: queue.read_state().ready) as ready:
                assert [row.seq for row in ready.value()] == [receipt.seq]

    def test_a_transaction_that_ends_after_a_younger_one_gives_a_new_version(self, test_dsn: str) -> None:
        queue = jqueue()
        queue.enqueue("so that the queue's rows are there")
        queue.ack(queue.claim()[0])
        hurried = {"options": "-c lock_timeout=10s"}
        with psycopg.connect(test_dsn, **hurried) as old, psycopg.connect(test_dsn, **hurried) as young:
            engine.ConnectionExecutor(old).run(engine.enqueue(queue.name, [engine.NewJob(key="old")]))
            engine.ConnectionExecutor(young).run(engine.enqueue(queue.name, [engine.NewJob(key="young")]))
            snapshots = [queue.read_state()]
            for each in (young, old):
                each.commit()
                snapshots.append(queue.read_state())
            again = queue.read_state()
        assert [{row.key for row in snapshot.ready} for snapshot in snapshots] == [set(), {"young"}, {"old", "young"}]
        versions = [snapshot.version for snapshot in snapshots]
        assert versions == sorted(set(versions))
        assert again.version >= versions[-1]

    def test_the_version_grows_with_every_write_of_the_callers_own_transaction_too(self) -> None:
        queue = jqueue()
        queue.create()
        before = queue.read_state().version
        jobs: list[Any] = []
        writes = (
            lambda: queue.enqueue(1), lambda: jobs.extend(queue.claim()), lambda: queue.nack(jobs.pop()),
            lambda: jobs.extend(queue.claim()), lambda: queue.ack(jobs.pop()),
        )  # fmt: skip
        with transaction.atomic():
            versions = [queue.read_state().version]
            assert before <= versions[0]
            for write in writes:
                write()
                versions.append(queue.read_state().version)
        versions.append(queue.read_state().version)
        assert versions == sorted(set(versions))


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("native")
class TestHeartbeat:
    @pytest.mark.parametrize("buffered", [False, True])
    async def test_beats_while_the_body_runs_and_stops_on_exit(self, buffered: bool) -> None:
        queue = jqueue()
        await queue.aenqueue(1)
        async with BufferedQueue(queue) if buffered else nullcontext(queue) as door:
            [job] = await door.aclaim(lease_ms=60_000)
            async with Heartbeat(door, job, interval=0.02) as heart:
                late = job.deadline + timedelta(milliseconds=100)
                await aeventually(lambda: heart.job.deadline > late, "the beating")
            stopped = heart.job.deadline
            await asyncio.sleep(0.1)
            assert heart.job.deadline == stopped
            assert not heart.lost
            await door.aack(job)

    async def test_a_lost_job_ends_it_silently_and_visibly(self) -> None:
        queue = jqueue()
        await queue.aenqueue(1)
        [job] = await queue.aclaim()
        async with Heartbeat(queue, job, interval=0.01) as heart:
            await queue.aack(job)
            await aeventually(lambda: heart.lost, "the loss")
            with pytest.raises(LeaseLost):
                heart.raise_if_lost()
            reached = True
        assert reached

    def test_a_beat_by_hand_inside_a_transaction(self) -> None:
        queue = jqueue()
        with transaction.atomic():
            queue.enqueue(1)
            [job] = queue.claim()
            with Heartbeat(queue, job, interval=0.01) as heart:
                time.sleep(0.1)
                assert not heart.lost
                assert heart.beat().deadline > job.deadline


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("native")
class TestGroupCommit:
    async def test_concurrent_calls_share_transactions(self) -> None:
        queue = jqueue(log_enqueued=False)
        await queue.acreate()
        async with BufferedQueue(queue) as buffer:
            await asyncio.gather(*(buffer.aenqueue(number) for number in range(200)))
            enqueued = await in_thread(lambda: set(JobRow.objects.values_list("created_at", flat=True)))
            assert len(enqueued) <= 3  # statements: all jobs of one have the same time
            jobs = list(itertools.chain(*await asyncio.gather(*(buffer.aclaim() for _ in range(200)))))
            assert sorted(job.payload for job in jobs) == list(range(200))
            assert len({job.token for job in jobs}) <= 3
            await asyncio.gather(*(buffer.aack(job) for job in jobs))
        assert not await in_thread(JobRow.objects.exists)

    async def test_everything_mixed(self) -> None:
        queue = jqueue(result_ttl_ms=60_000, max_deliveries=0)
        async with BufferedQueue(queue) as buffer:
            for number in range(6):
                await buffer.aenqueue(number, key=f"k{number}")
            ack, nack, extend, fail, progress, stays = [(await buffer.aclaim())[0] for _ in range(6)]
            answers = await asyncio.gather(
                buffer.aack(ack, {"r": 1}), buffer.anack(nack, error="boom"), buffer.aextend(extend, 600_000),
                buffer.afail(fail, ValueError("no use")), buffer.aprogress(progress, {"percent": 5}),
                buffer.aenqueue("new", key="new"), buffer.aclaim(1),
            )  # fmt: skip
        assert (answers[0].state, answers[0].result, answers[1].state) == ("completed", {"r": 1}, "ready")
        assert answers[2].deadline > extend.deadline
        assert (answers[3].state, answers[5].status) == ("failed", "queued")
        assert [job.key for job in answers[6]] in (["k1"], ["new"], [])
        assert (await queue.aget_status("k4")).progress == {"percent": 5}  # type: ignore[union-attr]  # it is there
        assert (await queue.aget_status("k5")).node == stays.node  # type: ignore[union-attr]  # it is there

    async def test_a_bad_call_fails_alone(self) -> None:
        queue = jqueue()
        async with BufferedQueue(queue) as buffer:
            await asyncio.gather(*(buffer.aenqueue(number) for number in range(3)))
            gone, good, back = await buffer.aclaim(3)
            await buffer.aack(gone)
            answers = await asyncio.gather(
                buffer.aenqueue("valid"), buffer.anack(gone), buffer.aenqueue("\x00"), buffer.aenqueue("x" * 2_000_000),
                buffer.aenqueue({1, 2}), buffer.aack(good), buffer.aack(gone), buffer.anack(back), buffer.aclaim(1),
                return_exceptions=True,
            )  # fmt: skip
        kinds = [type(answer) for answer in answers]
        assert kinds[1:5] == [JobNotFound, InvalidOption, exceptions.PayloadTooLarge, InvalidOption]
        assert kinds[6] is JobNotFound
        assert answers[0].status == "queued"  # type: ignore[union-attr]  # checked by the kinds
        assert answers[5].state == "completed"  # type: ignore[union-attr]
        assert answers[7].state == "ready"  # type: ignore[union-attr]
        # Whether the claim already sees what is enqueued beside it is chance; it has an answer of its own.
        assert isinstance(answers[8], list)

    async def test_claims_are_shared_out_in_order_and_keep_their_options(self) -> None:
        queue = jqueue()
        await queue.aenqueue_many(range(10))
        async with BufferedQueue(queue) as buffer:
            shares = await asyncio.gather(*(buffer.aclaim(4) for _ in range(4)))
        assert [len(share) for share in shares] == [4, 4, 2, 0]
        assert [job.payload for share in shares for job in share] == list(range(10))
        queue = jqueue("others")
        await queue.aenqueue("a", tag="a")
        await queue.aenqueue("b", tag="b")
        async with BufferedQueue(queue) as buffer:
            b, short = await asyncio.gather(buffer.aclaim(5, tag="b"), buffer.aclaim(5, lease_ms=1_000))
        assert [job.payload for job in b] == ["b"]
        assert [round((job.deadline - job.claimed_at).total_seconds()) for job in short] == [1]

    async def test_a_claimer_who_left_gives_its_jobs_back(self) -> None:
        queue = jqueue()
        await queue.aenqueue(1)
        async with BufferedQueue(queue) as buffer:
            task = asyncio.create_task(buffer.aclaim())
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # the claim is on its way
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        [job] = await queue.aclaim()
        assert job.deliveries == 1

    @pytest.mark.parametrize("error", [None, ZeroDivisionError])
    async def test_what_is_buffered_is_flushed_on_exit(self, error: type[Exception] | None) -> None:
        with pytest.raises(error) if error else nullcontext():
            async with BufferedQueue(jqueue()) as buffer:
                tasks = [asyncio.create_task(buffer.aenqueue(number)) for number in range(20)]
                await asyncio.sleep(0)
                if error:
                    raise error
        assert [(await task).status for task in tasks] == ["queued"] * 20

    async def test_use_outside_of_the_block_raises(self) -> None:
        buffer = BufferedQueue("jobs")
        with pytest.raises(QueueClosed):
            await buffer.aenqueue(1)
        async with buffer:
            await buffer.aenqueue(1)
        for call in (buffer.aenqueue(1), buffer.aclaim(), buffer.aenqueue_and_wait(1)):
            with pytest.raises(QueueClosed):
                await call
        with pytest.raises(QueueClosed):
            buffer.enqueue(1)

    @pytest.mark.parametrize(("cause", "fails"), [
        (psycopg.errors.DeadlockDetected(), 2),  # nothing has happened
        (psycopg.OperationalError("gone"), 1),  # what was sent may have happened: it is not sent again
    ], ids=["deadlock", "lost"])  # fmt: skip
    async def test_after_a_deadlock_it_tries_again(self, cause: psycopg.Error, fails: int, monkeypatch: Any) -> None:
        failed = []
        fetch = AsyncConnectionExecutor.fetch

        async def sometimes(self: AsyncConnectionExecutor, name: str, params: Any) -> Any:
            if len(failed) < 2:
                failed.append(name)
                raise cause
            return await fetch(self, name, params)

        async with BufferedQueue(jqueue()) as buffer:
            monkeypatch.setattr(AsyncConnectionExecutor, "fetch", sometimes)
            answers = await asyncio.gather(*(buffer.aenqueue(n) for n in range(5)), return_exceptions=True)
        assert len(failed) == fails
        if fails == 2:
            assert [answer.status for answer in answers] == ["queued"] * 5  # type: ignore[union-attr]  # or this fails
        else:
            assert [getattr(answer, "cause", None) for answer in answers] == [cause] * 5
            assert [type(answer) for answer in answers] == [StorageError] * 5

    def test_in_threads(self) -> None:
        queue = jqueue(log_enqueued=False)
        queue.create()
        with BufferedQueue(queue) as buffer:
            threads = [ThreadResult(lambda: buffer.enqueue("x")) for _ in range(40)]
            for thread in threads:
                thread.__enter__()
            assert [thread.value().status for thread in threads] == ["queued"] * 40
            jobs = buffer.claim(40)
            assert len(jobs) == 40
            assert buffer.extend(jobs[0], 600_000).deadline > jobs[0].deadline
            assert buffer.nack(jobs[0]).state == "ready"
            with pytest.raises(LeaseLost):
                buffer.ack(jobs[0])
            assert buffer.ack(jobs[1]).state == "completed"
        with pytest.raises(QueueClosed):
            buffer.claim()

"""The Python door as a reliable queue, by its preset ``jobqueue``."""

import asyncio
import pickle
import threading
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import connections, transaction

from django_leasequeue import Consumer, NewJob, Queue, exceptions
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.exceptions import InvalidOption, JobNotFound, MaxRetries, SerializerError, WaitTimeout
from django_leasequeue.models import JobResult
from django_leasequeue.notify import get_listener
from django_leasequeue.notify.replies import get_hub
from tests.queue.conftest import jobqueue, states
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db


class TestStates:
    def test_what_it_says_of_each_state(self, clock: engine_clock.Clock) -> None:
        queue = jobqueue()
        assert queue.cancel("id") == "not_found"
        receipt = queue.enqueue(1, key="id")
        assert [queue.cancel(name) for name in (receipt, receipt.seq, "id")] == ["cancelled", "not_found", "not_found"]
        assert queue.enqueue(1, key="id", delay_ms=1_000).status == "queued"
        assert queue.cancel("id") == "cancelled"
        queue.enqueue(1, key="id")
        [job] = queue.claim()
        assert queue.cancel("id") == "processing"
        queue.nack(job, error="boom", delay_ms=1_000)
        assert queue.cancel("id") == "cancelled"
        queue.enqueue(1, key="id")
        queue.ack(queue.claim()[0], "result")
        assert queue.cancel("id") == "completed"
        queue.enqueue(1, key="other")
        queue.fail(queue.claim()[0], "no use")
        assert queue.cancel("other") == "failed"

    def test_status_of_a_life(self, clock: engine_clock.Clock) -> None:
        queue = jobqueue()
        jobs: list[Any] = []
        seen = [states(queue)]
        for step in (
            lambda: queue.enqueue(1, key="id"), lambda: jobs.extend(queue.claim()),
            lambda: queue.nack(jobs[0], error=ValueError("boom")), lambda: queue.ack(queue.claim()[0], "result"),
        ):  # fmt: skip
            step()
            seen.append(states(queue))
        assert seen == [None, "queued", "processing", "failing", "completed"]
        status = queue.get_status("id")
        assert (status.id, status.deliveries, status.node, status.finished_at) == ("id", 2, "worker-1", clock.now)
        assert status.expires_at == clock.now + timedelta(hours=1)
        assert [error["message"] for error in status.errors] == ["boom"]

    def test_unknown_is_none_and_none_is_a_result(self) -> None:
        queue = jobqueue()
        assert (queue.get_status("nobody"), queue.get_result("nobody")) == (None, None)
        assert queue.get_result("nobody", "default") == "default"
        with pytest.raises(JobNotFound):
            list(queue.stream_result("nobody"))
        queue.enqueue(1, key="id")
        queue.ack(queue.claim()[0])
        assert (states(queue), queue.get_result("id", "default")) == ("completed", None)

    def test_at_the_end_max_retries_is_recorded(self) -> None:
        queue = jobqueue()
        queue.enqueue(1, key="id")
        for number in range(3):
            queue.nack(queue.claim()[0], error=ValueError(f"boom {number}"))
        status = queue.get_status("id")
        failure = status.failure
        assert isinstance(failure, MaxRetries)
        assert (
            failure.job_id, failure.deliveries, failure.error_type, failure.error,
        ) == ("id", 3, "builtins.ValueError", "boom 2")  # fmt: skip
        assert "ValueError: boom 2" in failure.traceback
        assert isinstance(pickle.loads(pickle.dumps(failure)), MaxRetries)  # crosses process borders


def serves(queue: Queue, handler: Any = lambda job: {"echo": job.payload}, **options: Any) -> Consumer:
    """A worker in threads of this process: what it is given runs the jobs of a queue."""
    return Consumer(queue, handler, drain_timeout=5, reaper=False, **options)


def listening(dsn: str) -> int:
    """How many connections of this database listen to a reply channel, as PostgreSQL sees it: their last statement."""
    with psycopg.connect(dsn, autocommit=True) as other:
        row = other.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %reply%'"
        ).fetchone()
    return int(row[0])


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("native")
class TestRequestResponse:
    def test_returns_the_result(self) -> None:
        queue = jobqueue()
        with serves(queue):
            assert queue.enqueue_and_wait({"n": 1}, key="id") == {"echo": {"n": 1}}
            assert queue.enqueue_and_wait(2, key="id") == {"echo": {"n": 1}}, "it has completed before"
            assert queue.enqueue_and_wait(2) == {"echo": 2}
        forgetful = jobqueue("forgetful", result_ttl_ms=0, dedup_until="terminal")
        with serves(forgetful, lambda job: job.payload):
            assert [forgetful.enqueue_and_wait(value, timeout=60) for value in (None, 1)] == [None, 1]

    def test_failed_before_raises_at_once(self) -> None:
        queue = jobqueue()
        for key, kind in (("failed", exceptions.JobFailed), ("dead", MaxRetries)):
            queue.enqueue(1, key=key, max_deliveries=1)
            [job] = queue.claim()
            if key == "failed":
                queue.fail(job, "no use")
            else:
                queue.nack(job, error="boom")
            with pytest.raises(kind) as caught:
                queue.enqueue_and_wait(2, key=key)
            assert type(caught.value) is kind

    def test_a_timeout_leaves_the_job_running(self) -> None:
        queue = jobqueue()
        finish = threading.Event()

        def slow(job: Any) -> str:
            finish.wait(60)
            return "late"

        with serves(queue, slow):
            with pytest.raises(WaitTimeout) as caught:
                queue.enqueue_and_wait(1, key="id", timeout=0.2)
            assert isinstance(caught.value, TimeoutError)
            assert eventually(lambda: states(queue) == "processing")
            finish.set()
            assert queue.enqueue_and_wait(1, key="id", timeout=60) == "late"

    @pytest.mark.parametrize("door", ["thread", "coroutine"])
    @pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
    def test_a_number_given_again_answers_nobody_who_waited_for_the_lost_job(self, door: str, end: str) -> None:
        """A standby takes over that has not seen the last commits: the next job gets a number that is waited for."""
        queue = jobqueue()

        def call() -> Any:
            if door == "thread":
                return queue.enqueue_and_wait("lost", timeout=60)
            return asyncio.run(queue.aenqueue_and_wait("lost", timeout=60))

        with ThreadResult(call) as waiting:
            assert eventually(lambda: len(get_hub("default")._tickets) == 1)
            [lost] = queue.claim()
            with connections["default"].cursor() as cursor:
                cursor.execute("TRUNCATE leasequeue_claim, leasequeue_job, leasequeue_ready")
                cursor.execute("SELECT setval('leasequeue_job_seq_seq', %s, false)", [lost.seq])
            other = NewJob("another's", key="another", reply_to=get_hub("default").channel)
            assert queue.enqueue_many([other])[0].seq == lost.seq
            if end == "cancelled":  # and nothing of it is remembered
                assert queue.cancel("another") == "cancelled"
            else:
                [job] = queue.claim()
                queue.ack(job, "another's result") if end == "completed" else queue.fail(job, "another's failure")
            with pytest.raises(JobNotFound, match="is lost"):
                waiting.value()

    def test_a_duplicate_waits_for_the_same_run(self) -> None:
        queue = jobqueue()
        queue.enqueue("plain", key="id")  # by somebody who does not wait
        with ThreadResult(lambda: queue.enqueue_and_wait(1, key="id")) as one:
            with ThreadResult(lambda: queue.enqueue_and_wait(2, key="id")) as two:
                eventually(lambda: queue.list_jobs().jobs[0].reply_to, "joining")
                with serves(queue):
                    assert one.value() == two.value() == {"echo": "plain"}
        assert queue.get_status("id").deliveries == 1  # type: ignore[union-attr]  # it is there

    @pytest.mark.slow
    def test_an_end_that_comes_before_the_caller_sleeps(self) -> None:
        queue = jobqueue()
        with serves(queue, concurrency=4), ExitStack() as stack:
            numbers = range(25)
            ask = partial(ThreadResult, lambda: [queue.enqueue_and_wait(number, timeout=60) for number in numbers])
            threads = [stack.enter_context(ask()) for _ in range(8)]
            assert [thread.value(60) for thread in threads] == [[{"echo": number} for number in numbers]] * 8

    def test_cancelled_or_moved_to_a_dead_letter_topic_while_somebody_waits(self) -> None:
        queue = jobqueue(dead_letter="letters", max_deliveries=1)
        for ends, error in (
            (lambda: queue.cancel("id"), exceptions.JobCancelled),
            (lambda: queue.nack(queue.claim()[0], error="boom"), MaxRetries),
        ):
            with ThreadResult(lambda: queue.enqueue_and_wait(1, key="id")) as waiting:
                eventually(lambda: states(queue) == "queued")
                ends()
                with pytest.raises(error):
                    waiting.value()

    def test_not_inside_a_transaction_and_not_for_ever(self) -> None:
        queue = jobqueue()
        with transaction.atomic(), pytest.raises(InvalidOption, match="atomic"):
            queue.enqueue_and_wait(1)
        for timeout in (0, -1, True, "5", None, 1e9):
            with pytest.raises(InvalidOption, match="timeout"):
                queue.enqueue_and_wait(1, timeout=timeout)

    def test_the_loss_of_the_listen_connection_is_survived(self, test_dsn: str) -> None:
        queue = jobqueue()
        with ThreadResult(lambda: queue.enqueue_and_wait(1, key="id", timeout=60)) as waiting:
            eventually(lambda: states(queue) == "queued")
            eventually(lambda: listening(test_dsn) == 1, "listening")
            kill_listeners(test_dsn)
            [job] = queue.claim()
            queue.ack(job, "told nobody")
            assert waiting.value() == "told nobody"

    @pytest.mark.parametrize("listens", [False, True])
    def test_behind_a_pooler_or_polling(self, settings: Any, monkeypatch: Any, test_dsn: str, listens: bool) -> None:
        if listens:
            # As hosts say it of an alias that goes through pgbouncer in transaction mode.
            monkeypatch.setitem(connections["default"].settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
            assert get_listener().polls
        settings.LEASEQUEUE = {"LISTEN_DSN": test_dsn if listens else "", "ASYNC": "native"}
        assert get_listener().polls is not listens
        queue = jobqueue()
        with ThreadResult(lambda: queue.enqueue_and_wait(1, key="id")) as waiting:
            eventually(lambda: states(queue) == "queued")
            eventually(lambda: listening(test_dsn) == listens, "listening")
            queue.ack(queue.claim()[0], "told")
            assert waiting.value() == "told"

    @pytest.mark.slow
    async def test_thousands_of_callers_hold_one_connection(self, test_dsn: str) -> None:
        queue = jobqueue()
        await queue.acreate()
        callers = 2_000
        tasks = [asyncio.create_task(queue.aenqueue_and_wait(n, timeout=120)) for n in range(callers)]
        while (await queue.acounts()).ready < callers:
            await asyncio.sleep(0.05)
        assert await asyncio.to_thread(listening, test_dsn) == 1
        done = 0
        while done < callers:
            jobs = await queue.aclaim(1_000)
            await asyncio.gather(*(queue.aack(job, -job.payload) for job in jobs[:3]))
            settled = await queue.aack_many(jobs[3:])
            done += 3 + len(settled.ok)
        answers = await asyncio.gather(*tasks)
        assert (len(answers), answers.count(None)) == (callers, callers - 6)

    def test_a_caller_that_leaves_leaves_no_trace(self, test_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for seconds in ("CHANNEL_LINGER", "IDLE_CLOSE", "HEARTBEAT"):
            monkeypatch.setattr(f"django_leasequeue.notify.listener.{seconds}", 0.1)
        queue = jobqueue()
        hub = get_hub(queue.using)
        for _ in range(3):
            with pytest.raises(WaitTimeout):
                queue.enqueue_and_wait(1, timeout=0.05)
        assert (hub.waiting, hub._tickets, hub._unbound, hub._heard, hub._subscription) == (0, {}, {}, {}, None)
        eventually(lambda: listening(test_dsn) == 0, "the end of the listening")

    async def test_a_cancelled_caller_leaves_no_trace(self) -> None:
        queue = jobqueue()
        await queue.acreate()
        task = asyncio.create_task(queue.aenqueue_and_wait(1))
        while not (await queue.acounts()).ready:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert get_hub(queue.using).waiting == 0


def kill_listeners(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'LISTEN %'"
        )


class TestSerializers:
    def _round_trip(self, queue: Queue, value: Any) -> Any:
        receipt = queue.enqueue(value)
        [job] = queue.claim()
        queue.ack(job, job.payload)
        return queue.get_result(receipt)

    def test_json_and_bytes_without_a_word_and_messagepack(self, clock: engine_clock.Clock) -> None:
        for value in ({"a": [1, 2.5, None, True, "ü"], "b": {}}, b"\x00\x01\xff"):
            assert self._round_trip(jobqueue(), value) == value
        packed = {"frames": b"\x00\xff", "at": clock.now, 7: [None, "x"]}
        assert self._round_trip(jobqueue("packed", serializer="msgpack"), packed) == packed

    def test_the_database_names_the_queues_serializer(self) -> None:
        jobqueue(serializer="msgpack").create()
        assert self._round_trip(Queue("images"), b"raw") == b"raw"
        assert bytes(JobResult.objects.get().result_body) == b"\xc4\x03raw"

    def test_what_cannot_be_written_is_refused(self) -> None:
        for serializer, value in (("json", {1, 2}), ("msgpack", object()), ("bytes", "text")):
            with pytest.raises((SerializerError, InvalidOption)):
                jobqueue(serializer, serializer=serializer).enqueue(value)
        with pytest.raises(InvalidOption, match="bytes, json, msgpack"):
            jobqueue(serializer="yaml").enqueue(1)

    def test_what_cannot_be_read_says_which_job(self) -> None:
        queue = jobqueue()
        queue.enqueue(b"\xc1", key="id")
        [job] = Queue("images", serializer="msgpack").claim()
        with pytest.raises(SerializerError, match="job id"):
            _ = job.payload

    @pytest.mark.parametrize("path", ["no.such.module", ("pickle.dumps",)])
    def test_a_wrong_path_says_so(self, settings: Any, path: Any) -> None:
        settings.LEASEQUEUE = {"SERIALIZERS": {"mine": path}}
        with pytest.raises(InvalidOption, match="SERIALIZERS"):
            jobqueue(serializer="mine").enqueue(1)


@pytest.mark.django_db(transaction=True)
class TestOneTransaction:
    def test_state_result_removal_and_notification_together(self, test_dsn: str) -> None:
        queue = jobqueue()
        queue.enqueue(1, key="id", reply_to="p13")
        [job] = queue.claim()
        with psycopg.connect(test_dsn, autocommit=True) as other:
            other.execute("LISTEN p13")
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                queue.ack(job, "undone")
                raise ZeroDivisionError
            with transaction.atomic():
                queue.ack(job, "result")
                assert _others_view(queue) == ("processing", None)
                assert list(other.notifies(timeout=0.2)) == []
            assert _others_view(queue) == ("completed", "result")
            [told] = other.notifies(timeout=60, stop_after=1)
        assert told.payload == f"{job.seq}:1:id"


def _others_view(queue: Queue) -> tuple[str | None, Any]:
    with ThreadResult(lambda: (states(queue), queue.get_result("id"))) as result:
        answer: tuple[str | None, Any] = result.value()
    return answer

"""The names of a job queue's library in Python style, with the name of a queue in the storage's place.

A table in ``docs/how-to/move-from-jobqueue.md`` says in words what who comes from there relies on.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
import pytest

from django_leasequeue import Queue as Handle
from django_leasequeue.compat import jobqueue
from django_leasequeue.exceptions import InvalidOption, LeaseQueueError
from django_leasequeue.tasks import FailForGood
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("native")]


@pytest.fixture
def queue() -> jobqueue.Queue:
    return jobqueue.Queue("jobs")


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def hears(queue: Any, *events: str) -> list[Any]:
    """What a queue says of these events: the name of one, and what comes with it."""
    heard: list[Any] = []
    for event in events:
        queue.on(event, lambda *said, event=event: heard.append((event, *said)))
    return heard


def boom(job: jobqueue.Job) -> None:
    raise ValueError("no disk")


def answer(queue: jobqueue.Queue, handler: Callable[..., Any], *payload: Any, **options: Any) -> Any:
    queue.execute(handler)
    with queue:
        return queue.enqueue_and_wait("id", *payload, **options)


def failure(queue: jobqueue.Queue, handler: Any = boom, kind: Any = jobqueue.MaxRetriesError, **options: Any) -> Any:
    with pytest.raises(kind, check=lambda error: type(error) is kind) as caught:
        answer(queue, handler, **options)
    return caught.value


def kept_for(queue: jobqueue.Queue, id: str = "id") -> float:
    status = queue.queue.get_status(id)
    return (status.expires_at - status.finished_at).total_seconds()


class TestExamples:
    def test_custom_serde_messagepack(self) -> None:
        class MsgpackSerde:
            def serialize(self, value: Any) -> bytes:
                return bytes(msgpack.packb(value))

            def deserialize(self, buffer: bytes) -> Any:
                return msgpack.unpackb(buffer)

        value = {"a": ["é", None]}
        assert jobqueue.JsonSerde().deserialize(jobqueue.create_json_serde().serialize(value)) == value
        serdes: dict[str, Any] = {"payload_serde": MsgpackSerde(), "result_serde": MsgpackSerde()}

        def hook(context: jobqueue.AfterExecutionContext) -> None:  # it sees values, not bytes
            context.result["of"] = context.payload["video_id"]

        queue = jobqueue.Queue("video-processor", after_execution=hook, **serdes)
        done = hears(queue, "completed")

        @queue.execute
        def thumbnails(job: jobqueue.Job) -> dict[str, Any]:
            return {"thumbnails": [job.payload["frames"][:2]]}

        with queue:
            asked = queue.enqueue_and_wait("v", {"video_id": "v", "frames": b"\x00\x01\x02"}, timeout=120)
            eventually(lambda: done)
        assert asked == {"thumbnails": [b"\x00\x01"], "of": "v"} == queue.get_result("v")
        assert done == [("completed", "v", asked)]
        assert queue.enqueue("v", None) == jobqueue.EnqueueResult("completed", None, asked)

    def test_error_handling(self, queue: jobqueue.Queue) -> None:
        dead_letters = jobqueue.Queue("dead-letters")

        def on_failed(id: str, error: Exception) -> None:
            if isinstance(error, jobqueue.MaxRetriesError):
                dead_letters.enqueue(id, error.payload)  # type: ignore[attr-defined]  # events have it

        queue.on("failed", on_failed)
        queue.execute(boom)
        with queue:
            with pytest.raises(jobqueue.JobFailedError) as caught:
                queue.enqueue_and_wait("job-1", {"a": 1}, timeout=120)
            assert (caught.value.error, caught.value.deliveries) == ("no disk", 3)
            assert queue.enqueue("job-1", {"a": 1}) == jobqueue.EnqueueResult("queued")  # a failed id is free
            for _ in range(2):
                with pytest.raises(jobqueue.MaxRetriesError, match="no disk"):
                    queue.enqueue_and_wait("job-1", {"a": 1}, timeout=120)
            eventually(lambda: dead_letters.get_status("job-1"))
        [moved] = dead_letters.queue.claim()
        assert moved.payload == {"a": 1}

    @pytest.mark.usefixtures("closed_pools")
    async def test_a_service_under_test_in_async_code(self, queue: jobqueue.Queue) -> None:
        heard = hears(queue, "started", "stopped")

        @queue.execute
        async def handler(job: jobqueue.Job) -> dict[str, bool]:
            return {"processed": True}

        assert await queue.astop()
        async with queue:
            await queue.astart()
            assert await queue.aenqueue_and_wait("test-1", {"data": "test"}) == {"processed": True}
        assert heard == [("started",), ("stopped",)]


class TestRuns:
    @pytest.mark.parametrize(("retries", "runs"), [(0, 1), (1, 1), (3, 3)])
    def test_max_retries_is_the_number_of_runs_and_0_is_one(self, retries: int, runs: int) -> None:
        queue = jobqueue.Queue("jobs", max_retries=retries)
        attempts: list[int] = []
        failing = hears(queue, "failing")

        def handler(job: jobqueue.Job) -> None:
            attempts.append(job.attempts)
            raise ValueError("no disk")

        failure(queue, handler)
        assert attempts == [*range(1, runs + 1)]
        assert [(id, type(error), str(error.error), attempt) for _, id, error, attempt in failing] == [
            ("id", jobqueue.JobFailedError, "no disk", attempt) for attempt in range(1, runs)
        ]
        status = queue.get_status("id")
        assert (status.state, status.attempts, status.result) == ("failed", runs, None)
        assert (status.error.message, status.error.code) == ("no disk", "builtins.ValueError")
        assert 'raise ValueError("no disk")' in str(status.error.stack)

    @pytest.mark.parametrize("retries", [0, 1])
    def test_of_one_job(self, queue: jobqueue.Queue, retries: int) -> None:
        assert failure(queue, max_attempts=retries).deliveries == 1

    def test_of_a_handle_that_retries_without_end(self) -> None:
        handle = Handle("jobs", preset="jobqueue", max_deliveries=0)
        assert failure(jobqueue.Queue(handle, max_retries=0)).deliveries == 1


class TestHungHandlers:
    # The lease alone would not end within this test; where nothing is said it is what counts.
    @pytest.mark.slow
    @pytest.mark.parametrize(("lease_ms", "given"), [(600_000, {"visibility_timeout": 5_000}), (5_000, {})])
    def test_a_hung_run_is_told_and_its_job_runs_again(
        self, release: threading.Event, caplog: Any, lease_ms: int, given: dict[str, int]
    ) -> None:
        handle = Handle("jobs", preset="jobqueue", lease_ms=lease_ms)
        queue = jobqueue.Queue(handle, concurrency=1, **given)
        signals: list[jobqueue.AbortSignal] = []

        @queue.execute
        def handler(job: jobqueue.Job) -> str:
            signals.append(job.signal)
            if job.attempts == 1:
                release.wait(60)
            return f"run {job.attempts}"

        stalled = hears(queue, "stalled")
        with queue:
            assert queue.enqueue_and_wait("id", timeout=60) == "run 2"
            assert not release.is_set()
            assert (signals[0].aborted, signals[0].reason, signals[1].aborted) == (True, "lease_lost", False)
            # What it still returns does not count.
            release.set()
            eventually(lambda: "Lease lost: the result of the job is dropped" in caplog.text)
            assert queue.get_result("id") == "run 2"
            assert queue.stop()
        assert stalled == [("stalled", "id")]

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_handler_is_told_to_stop(self, queue: jobqueue.Queue, is_async: bool) -> None:
        seen: list[Any] = []

        def told(job: jobqueue.Job, reason: str) -> None:
            seen.append(reason)
            try:
                job.signal.throw_if_aborted()
            except jobqueue.AbortError:
                seen.append("thrown")
                raise

        def handler(job: jobqueue.Job) -> None:
            seen.append(job.signal.aborted)
            assert job.signal.wait(120)
            told(job, job.signal.reason)

        async def ahandler(job: jobqueue.Job) -> None:
            seen.append(job.signal.aborted)
            told(job, await job.signal.wait_aborted())

        queue.execute(ahandler if is_async else handler)
        queue.start()
        queue.enqueue("id")
        eventually(lambda: seen)
        queue.stop(timeout=0.1)
        assert seen == [False, "stopping", "thrown"]

    def test_the_reaper_says_stalled_once(self) -> None:
        handle = Handle("jobs", preset="jobqueue", lease_ms=100)
        queue = jobqueue.Queue(handle)
        queue.enqueue("id")
        handle.claim()
        reaper, other = jobqueue.Reaper(handle), jobqueue.Reaper("others")
        stalled, others = hears(reaper, "stalled"), hears(other, "stalled")
        with reaper:
            other._events.connect(None)
            try:
                eventually(lambda: stalled)
                assert reaper.leading
            finally:
                other._events.disconnect()
        assert queue.get_status("id").state == "queued"  # type: ignore[union-attr]  # it is there
        assert (stalled, others) == ([("stalled", "id")], [])


class TestAfterExecution:
    def test_of_a_completed_run(self) -> None:
        seen: list[jobqueue.AfterExecutionContext] = []

        def hook(context: jobqueue.AfterExecutionContext) -> None:
            seen.append(context)
            context.result = {"shown": context.result["made"]}
            context.ttl = 5_000
            context.id, context.status = "another", "failed"

        queue = jobqueue.Queue("jobs", worker_id="me", result_ttl=60_000, after_execution=hook)
        queue.execute(lambda job: {"made": job.payload})
        done = hears(queue, "completed")
        with queue:
            assert queue.enqueue_and_wait("id", 7) == {"shown": 7}
            eventually(lambda: done)
        assert done == [("completed", "id", {"shown": 7})]
        assert kept_for(queue) == 5
        [context] = seen
        assert (context.payload, context.attempts, context.max_attempts, context.error) == (7, 1, 3, None)
        assert context.worker_id.startswith("me")
        assert context.created_at <= context.started_at + timedelta(seconds=5)
        assert context.started_at <= context.finished_at
        assert context.duration_ms >= 0

    @pytest.mark.parametrize(("given", "shown"), [({}, 3_600_000), ({"result_ttl": 9_000}, 9_000)])
    def test_the_ttl_that_it_sees(self, given: dict[str, int], shown: int) -> None:
        ttls: list[int] = []
        queue = jobqueue.Queue("jobs", after_execution=lambda context: ttls.append(context.ttl))
        answer(queue, lambda job: 1, **given)
        assert (ttls, kept_for(queue)) == ([shown], shown / 1_000)

    @pytest.mark.parametrize(("raises", "runs", "kind"), [
        (ValueError("no disk"), 3, jobqueue.MaxRetriesError),
        (FailForGood("no disk"), 1, jobqueue.JobFailedError),
    ])  # fmt: skip
    def test_of_the_last_failed_run_only(self, raises: Exception, runs: int, kind: type[Exception]) -> None:
        seen: list[tuple[int, str, str]] = []

        def hook(context: jobqueue.AfterExecutionContext) -> None:
            seen.append((context.attempts, context.status, str(context.error)))
            context.error = RuntimeError("out of space")
            context.ttl = 7_000

        def handler(job: jobqueue.Job) -> None:
            raise raises

        queue = jobqueue.Queue("jobs", max_retries=3, after_execution=hook)
        assert "out of space" in str(failure(queue, handler, kind))
        assert (seen, kept_for(queue)) == ([(runs, "failed", "no disk")], 7)

    def test_a_failure_stays_one(self) -> None:
        def hook(context: jobqueue.AfterExecutionContext) -> None:
            context.error, context.result, context.status = None, "saved", "completed"

        assert "no disk" in str(failure(jobqueue.Queue("jobs", max_retries=1, after_execution=hook)))

    @pytest.mark.parametrize("is_async", [False, True])
    def test_coroutine_functions_serve_too(self, is_async: bool) -> None:
        async def hook(context: jobqueue.AfterExecutionContext) -> None:
            await asyncio.sleep(0)
            context.result += 1

        async def in_a_coroutine(job: jobqueue.Job) -> int:
            return int(job.payload)

        queue = jobqueue.Queue("jobs", after_execution=hook)
        assert answer(queue, in_a_coroutine if is_async else lambda job: int(job.payload), 1) == 2

    @pytest.mark.parametrize("wrong", [0, "soon"])
    def test_one_that_raises_or_says_nonsense_changes_nothing(self, wrong: Any, caplog: Any) -> None:
        def hook(context: jobqueue.AfterExecutionContext) -> None:
            context.result, context.ttl = "spoilt", wrong

        assert answer(jobqueue.Queue("jobs", after_execution=hook), lambda job: "kept") == "kept"
        assert "after_execution raised" in caplog.text


class TestEvents:
    def test_of_a_life(self, queue: jobqueue.Queue) -> None:
        heard = hears(queue, "enqueued", "processing", "cancelled")

        async def completed(id: str, result: Any) -> None:
            heard.append(("completed", id, result))

        queue.on("completed", completed)
        queue.execute(lambda job: job.payload)
        with queue:
            queue.enqueue_and_wait("id", 5)
            eventually(lambda: len(heard) == 3)
        jobqueue.Queue("others").enqueue("another queue's")
        queue.enqueue("after the stop")
        # A quick consumer starts it before the producer has said that it is there.
        assert sorted(heard) == [("completed", "id", 5), ("enqueued", "id"), ("processing", "id")]
        assert [event for event, *_ in heard if event != "enqueued"] == ["processing", "completed"]

    def test_off_and_a_handler_that_raises(self, queue: jobqueue.Queue, caplog: pytest.LogCaptureFixture) -> None:
        heard: list[str] = []
        queue.on("enqueued", lambda id: 1 / 0)
        queue.on("enqueued", heard.append)
        with queue:
            assert queue.enqueue("1").status == "queued"
            assert (heard, "handler of the event enqueued raised" in caplog.text) == (["1"], True)
            queue.off("enqueued", heard.append)
            queue.off("enqueued", heard.append)
            queue.enqueue("2")
        assert heard == ["1"]

    def test_errors_are_those_of_the_machinery_and_no_failed_job(self) -> None:
        queue = jobqueue.Queue("jobs", max_retries=1)
        heard = hears(queue, "error")
        logger = logging.getLogger("django_leasequeue.worker")
        queue.execute(boom)
        with queue:
            with pytest.raises(jobqueue.MaxRetriesError):
                queue.enqueue_and_wait("id")
            assert heard == []
            logger.warning("not an error")
            logger.error("no leases today")
            try:
                raise jobqueue.StorageError("away")
            except jobqueue.StorageError:
                logger.exception("it failed")
        logger.error("after the stop")
        assert [(isinstance(error, LeaseQueueError), str(error)) for _, error in heard] == [
            (True, "no leases today"), (True, "away"),
        ]  # fmt: skip


class TestLife:
    def test_a_handler_that_comes_after_the_start_runs(self, queue: jobqueue.Queue) -> None:
        with queue:
            queue.enqueue("before")
            queue.execute(lambda job: job.id)
            assert queue.enqueue_and_wait("after") == "after"
            eventually(lambda: queue.get_result("before") == "before")

    def test_the_queue_says_once_that_it_has_started_and_stopped(self, queue: jobqueue.Queue) -> None:
        heard = hears(queue, "started", "stopped")
        assert queue.stop()
        queue.start()
        queue.start()
        assert heard == [("started",)]
        assert queue.stop()
        assert queue.stop()
        assert heard == [("started",), ("stopped",)]
        with queue:
            pass
        assert heard == [("started",), ("stopped",)] * 2

    def test_nothing_is_left_of_a_start_that_fails(self) -> None:
        queue = jobqueue.Queue("jobs", concurrency=0)
        queue.execute(lambda job: None)
        heard = hears(queue, "enqueued")
        with pytest.raises(InvalidOption, match="concurrency"):
            queue.start()
        queue.enqueue("id")
        assert heard == []
        assert queue.stop()


#: Values that a queue, one of its jobs or an event refuses, and what it says.
REFUSED: list[tuple[str, Callable[[Any], Any], list[Any]]] = [
    ("max_retries must be an integer from 0", lambda it: jobqueue.Queue("jobs", max_retries=it), [-1, 1.5, True, "3"]),
    ("max_attempts must be an integer from 0", lambda it: jobqueue.Queue("jobs").enqueue("id", max_attempts=it),
     [-1, 1.5, True, "3"]),
    ("visibility_timeout must be an integer from 100 to 86400000",
     lambda it: jobqueue.Queue("jobs", visibility_timeout=it), [0, 99, 86_400_001, 1.5, True]),
    ("after_execution must be a function", lambda it: jobqueue.Queue("jobs", after_execution=it), ["print"]),
    ("worker_id", lambda it: jobqueue.Queue(Handle("jobs"), worker_id=it), ["me"]),
    ("event must be one of .* it is 'drained'", lambda it: jobqueue.Queue("jobs").on(it, print), ["drained"]),
    ("handler must be a function", lambda it: jobqueue.Queue("jobs").on("failed", it), ["print"]),
    ("handler must be a function", lambda it: jobqueue.Queue("jobs").execute(it), [json]),
    ("There is no callback", lambda it: jobqueue.Queue("jobs").execute(it), [lambda job, callback: callback(None, 1)]),
    (r"handler must take \(id, error, attempt\) for 'failing'", lambda it: jobqueue.Queue("jobs").on("failing", it),
     [lambda id, error: None]),
    (r"handler must take \(\) for 'started'", lambda it: jobqueue.Queue("jobs").on("started", it), [lambda id: None]),
]  # fmt: skip


@pytest.mark.parametrize(("says", "call", "values"), REFUSED)
def test_bad_input(says: str, call: Callable[[Any], Any], values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidOption, match=says):
            call(value)


class TestStatus:
    @pytest.mark.parametrize("result", [{"a": [1]}, "x" * 200_000], ids=["small", "large"])
    def test_of_a_completed_job(self, queue: jobqueue.Queue, result: Any) -> None:
        before = datetime.now(UTC) - timedelta(minutes=1)
        queue.enqueue("id")
        queue.queue.ack(queue.queue.claim()[0], result)
        status = queue.get_status("id")
        assert (status.id, status.state, status.attempts) == ("id", "completed", 1)
        assert (status.result, status.error) == (result, None)
        assert before < status.created_at <= datetime.now(UTC) + timedelta(minutes=1)

    def test_of_a_job_that_gave_up_and_of_one_between_two_runs(self, queue: jobqueue.Queue) -> None:
        queue.enqueue("gave up")
        queue.queue.fail(queue.queue.claim()[0], "no use")
        queue.enqueue("failing")
        queue.queue.nack(queue.queue.claim()[0], delay_ms=60_000, error="not yet")
        for id, state, message in (("gave up", "failed", "no use"), ("failing", "failing", "not yet")):
            status = queue.get_status(id)
            assert (status.state, status.error.message, str(status.error)) == (state, message, message)


class TestEnds:
    def test_update_result_ttl_answers(self) -> None:
        queue = jobqueue.Queue("jobs", max_retries=1)
        assert queue.update_result_ttl("nobody", 1_000).status == "not_found"
        for id, end in (
            ("completed", queue.queue.ack),
            ("gave up", lambda job: queue.queue.fail(job, "no use")),
            ("dead", lambda job: queue.queue.nack(job, error="boom")),
        ):
            queue.enqueue(id)
            assert queue.update_result_ttl(id, 1_000).status == "not_terminal"
            [job] = queue.queue.claim()
            assert queue.update_result_ttl(id, 1_000).status == "not_terminal"
            end(job)
            assert kept_for(queue, id) > 1_000  # nothing was changed while it lived
            assert queue.update_result_ttl(id, 86_400_000).status == "updated"
            assert kept_for(queue, id) == pytest.approx(86_400, abs=60)

    def test_cancelling_a_failed_job_forgets_it(self) -> None:
        queue = jobqueue.Queue("jobs", max_retries=1)
        heard = hears(queue, "cancelled")
        with queue:
            queue.enqueue("gave up")
            queue.queue.fail(queue.queue.claim()[0], "no use")
            queue.enqueue("dead")
            queue.queue.nack(queue.queue.claim()[0], error="boom")
            for id in ("gave up", "dead"):
                assert queue.get_status(id).state == "failed"
                assert queue.cancel(id).status == "cancelled"
                assert queue.get_status(id) is None
                assert queue.cancel(id).status == "not_found"
                assert queue.enqueue(id) == jobqueue.EnqueueResult("queued")
                [job] = queue.queue.claim()
                assert (job.key, job.deliveries) == (id, 1)
                queue.queue.ack(job)
        assert heard == [("cancelled", "gave up"), ("cancelled", "dead")]
        assert queue.cancel("dead").status == "completed"

"""What who comes from job-queue relies on: a table in ``docs/how-to/move-from-jobqueue.md`` says the same in words."""

import asyncio
import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_leasequeue import Queue as Handle
from django_leasequeue.compat import jobqueue
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.tasks import FailForGood
from tests.compat.conftest import hears
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("native")]


@pytest.fixture
def release(stack: ExitStack) -> threading.Event:
    """Set at the end of the test, so that no thread hangs for longer."""
    event = threading.Event()
    stack.callback(event.set)
    return event


def boom(job: jobqueue.Job) -> None:
    raise ValueError("no disk")


def kept_for(queue: jobqueue.Queue, id: str) -> float:
    status = queue.queue.get_status(id)
    return (status.expires_at - status.finished_at).total_seconds()


class TestRuns:
    @pytest.mark.parametrize(("retries", "runs"), [(0, 1), (1, 1), (3, 3)])
    def test_max_retries_is_the_number_of_runs_and_0_is_one(self, retries: int, runs: int) -> None:
        queue = jobqueue.Queue("jobs", max_retries=retries)
        attempts: list[int] = []
        failing: list[Any] = []
        queue.on("failing", lambda id, error, attempt: failing.append((id, type(error), str(error.error), attempt)))

        @queue.execute
        def handler(job: jobqueue.Job) -> None:
            attempts.append(job.attempts)
            raise ValueError("no disk")

        with queue, pytest.raises(jobqueue.MaxRetriesError):
            queue.enqueue_and_wait("id")
        assert attempts == [*range(1, runs + 1)]
        assert failing == [("id", jobqueue.JobFailedError, "no disk", attempt) for attempt in range(1, runs)]
        status = queue.get_status("id")
        assert (status.state, status.attempts, status.result) == ("failed", runs, None)
        assert (status.error.message, status.error.code) == ("no disk", "builtins.ValueError")
        assert 'raise ValueError("no disk")' in str(status.error.stack)

    def test_of_one_job(self) -> None:
        queue = jobqueue.Queue("jobs")
        queue.execute(boom)
        with queue:
            for retries in (0, 1):
                with pytest.raises(jobqueue.MaxRetriesError) as caught:
                    queue.enqueue_and_wait(f"{retries}", max_attempts=retries)
                assert caught.value.deliveries == 1

    def test_of_a_handle_that_retries_without_end(self) -> None:
        queue = jobqueue.Queue(Handle("jobs", preset="jobqueue", max_deliveries=0), max_retries=0)
        queue.execute(boom)
        with queue, pytest.raises(jobqueue.MaxRetriesError) as caught:
            queue.enqueue_and_wait("id")
        assert caught.value.deliveries == 1

    @pytest.mark.parametrize("wrong", [-1, 1.5, True, "3"])
    def test_refuses_what_is_no_number_of_runs(self, wrong: Any) -> None:
        with pytest.raises(InvalidOption, match="max_retries must be an integer from 0"):
            jobqueue.Queue("jobs", max_retries=wrong)
        with pytest.raises(InvalidOption, match="max_attempts must be an integer from 0"):
            jobqueue.Queue("jobs").enqueue("id", max_attempts=wrong)


class TestHungHandlers:
    @pytest.mark.slow
    def test_a_hung_run_is_told_leaves_its_slot_and_its_job_runs_again(
        self, release: threading.Event, caplog: pytest.LogCaptureFixture
    ) -> None:
        # The lease alone would not end within this test.
        queue = jobqueue.Queue(
            Handle("jobs", preset="jobqueue", lease_ms=600_000), visibility_timeout=5_000, concurrency=1
        )
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
            eventually(lambda: "Lease lost: what the job did does not count" in caplog.text)
            assert queue.get_result("id") == "run 2"
            assert queue.stop()
        assert stalled == ["id"]

    @pytest.mark.slow
    def test_without_an_argument_it_is_the_length_of_the_queue_s_leases(self, release: threading.Event) -> None:
        queue = jobqueue.Queue(Handle("jobs", preset="jobqueue", lease_ms=5_000))
        another = threading.Event()

        @queue.execute
        def handler(job: jobqueue.Job) -> str:
            if job.attempts == 1:
                # Its end would count until another run has begun.
                assert job.signal.wait(60)
                assert another.wait(60)
            another.set()
            return f"run {job.attempts}"

        with queue:
            assert queue.enqueue_and_wait("id", timeout=60) == "run 2"

    @pytest.mark.parametrize("wrong", [0, 99, 86_400_001, 1.5, True])
    def test_refuses_other_times(self, wrong: Any) -> None:
        with pytest.raises(InvalidOption, match="visibility_timeout must be an integer from 100 to 86400000"):
            jobqueue.Queue("jobs", visibility_timeout=wrong)


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
        done: list[Any] = []
        queue.on("completed", lambda id, result: done.append((id, result)))
        with queue:
            assert queue.enqueue_and_wait("id", 7) == {"shown": 7}
            eventually(lambda: done)
        assert done == [("id", {"shown": 7})]
        assert kept_for(queue, "id") == 5
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
        queue.execute(lambda job: 1)
        with queue:
            queue.enqueue_and_wait("id", **given)
        assert ttls == [shown]
        assert kept_for(queue, "id") == shown / 1_000

    @pytest.mark.parametrize(("raises", "runs"), [(ValueError("no disk"), 3), (FailForGood("no disk"), 1)])
    def test_of_the_last_failed_run_only(self, raises: Exception, runs: int) -> None:
        seen: list[tuple[int, str, str]] = []

        def hook(context: jobqueue.AfterExecutionContext) -> None:
            seen.append((context.attempts, context.status, str(context.error)))
            context.error = RuntimeError("out of space")
            context.ttl = 7_000

        queue = jobqueue.Queue("jobs", max_retries=3, after_execution=hook)

        @queue.execute
        def handler(job: jobqueue.Job) -> None:
            raise raises

        with queue, pytest.raises(jobqueue.JobFailedError, match="out of space") as caught:
            queue.enqueue_and_wait("id")
        assert isinstance(caught.value, jobqueue.MaxRetriesError) == (runs == 3)
        assert seen == [(runs, "failed", "no disk")]
        assert kept_for(queue, "id") == 7

    def test_a_failure_stays_one(self) -> None:
        def hook(context: jobqueue.AfterExecutionContext) -> None:
            context.error, context.result, context.status = None, "saved", "completed"

        queue = jobqueue.Queue("jobs", max_retries=1, after_execution=hook)
        queue.execute(boom)
        with queue, pytest.raises(jobqueue.MaxRetriesError, match="no disk"):
            queue.enqueue_and_wait("id")

    @pytest.mark.parametrize("is_async", [False, True])
    def test_coroutine_functions_serve_too(self, is_async: bool) -> None:
        async def hook(context: jobqueue.AfterExecutionContext) -> None:
            await asyncio.sleep(0)
            context.result += 1

        async def in_a_coroutine(job: jobqueue.Job) -> int:
            return int(job.payload)

        queue = jobqueue.Queue("jobs", after_execution=hook)
        queue.execute(in_a_coroutine if is_async else lambda job: int(job.payload))
        with queue:
            assert queue.enqueue_and_wait("id", 1) == 2

    def test_it_sees_what_the_handler_returned_before_the_serde(self) -> None:
        class Words:
            def serialize(self, value: list[str]) -> bytes:
                return " ".join(value).encode()

            def deserialize(self, buffer: bytes) -> list[str]:
                return buffer.decode().split()

        queue = jobqueue.Queue(
            "jobs", payload_serde=Words(), result_serde=Words(),
            after_execution=lambda context: context.result.extend(context.payload),
        )  # fmt: skip
        queue.execute(lambda job: ["a"])
        with queue:
            assert queue.enqueue_and_wait("id", ["b", "c"]) == ["a", "b", "c"]

    @pytest.mark.parametrize("wrong", [0, "soon"])
    def test_one_that_raises_or_says_nonsense_changes_nothing(self, wrong: Any, caplog: Any) -> None:
        def hook(context: jobqueue.AfterExecutionContext) -> None:
            context.result, context.ttl = "spoilt", wrong

        queue = jobqueue.Queue("jobs", after_execution=hook)
        queue.execute(lambda job: "kept")
        with queue:
            assert queue.enqueue_and_wait("id") == "kept"
        assert "after_execution raised" in caplog.text
        with pytest.raises(InvalidOption, match="after_execution must be a function"):
            jobqueue.Queue("jobs", after_execution="print")  # type: ignore[arg-type]  # on purpose


class TestLife:
    def test_a_handler_that_comes_after_the_start_runs(self) -> None:
        queue = jobqueue.Queue("jobs")
        with queue:
            queue.enqueue("before")
            queue.execute(lambda job: job.id)
            assert queue.enqueue_and_wait("after") == "after"
            eventually(lambda: queue.get_result("before") == "before")

    def test_the_queue_says_once_that_it_has_started_and_stopped(self) -> None:
        queue = jobqueue.Queue("jobs")
        heard: list[str] = []
        queue.on("started", lambda: heard.append("started"))
        queue.on("stopped", lambda: heard.append("stopped"))
        assert queue.stop()
        queue.start()
        queue.start()
        assert heard == ["started"]
        assert queue.stop()
        assert queue.stop()
        assert heard == ["started", "stopped"]
        with queue:
            pass
        assert heard == ["started", "stopped"] * 2

    def test_a_handler_that_does_not_take_what_it_gets_is_refused(self) -> None:
        queue = jobqueue.Queue("jobs")
        with pytest.raises(InvalidOption, match="there is no callback"):
            queue.execute(lambda job, callback: callback(None, 1))
        with pytest.raises(InvalidOption, match=r"'failing' calls handler\(id, error, attempt\)"):
            queue.on("failing", lambda id, error: None)
        with pytest.raises(InvalidOption, match=r"'started' calls handler\(\)"):
            queue.on("started", lambda id: None)
        queue.on("failing", lambda *anything: None)


class TestStatus:
    @pytest.mark.parametrize("result", [{"a": [1]}, "x" * 200_000], ids=["small", "large"])
    def test_of_a_completed_job(self, result: Any) -> None:
        before = datetime.now(UTC) - timedelta(minutes=1)
        queue = jobqueue.Queue("jobs")
        queue.enqueue("id")
        queue.queue.ack(queue.queue.claim()[0], result)
        status = queue.get_status("id")
        assert (status.id, status.state, status.attempts) == ("id", "completed", 1)
        assert (status.result, status.error) == (result, None)
        assert before < status.created_at <= datetime.now(UTC) + timedelta(minutes=1)

    def test_of_a_job_that_gave_up_and_of_one_between_two_runs(self) -> None:
        queue = jobqueue.Queue("jobs")
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
        assert heard == ["gave up", "dead"]
        assert queue.cancel("dead").status == "completed"

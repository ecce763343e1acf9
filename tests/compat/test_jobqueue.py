"""The names of a job queue's library in Python style: its examples, with the name of a queue in the storage's place."""

import json
import logging
from contextlib import ExitStack
from typing import Any

import msgpack
import pytest

from django_leasequeue import Queue as Handle
from django_leasequeue.compat import jobqueue
from django_leasequeue.exceptions import InvalidOption, LeaseQueueError
from tests.compat.conftest import hears
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("native")]


class TestExamples:
    def test_custom_serde_messagepack(self) -> None:
        class MsgpackSerde:
            def serialize(self, value: Any) -> bytes:
                return bytes(msgpack.packb(value))

            def deserialize(self, buffer: bytes) -> Any:
                return msgpack.unpackb(buffer)

        assert jobqueue.JsonSerde().deserialize(jobqueue.create_json_serde().serialize({"a": ["é", None]})) == {
            "a": ["é", None]
        }
        queue = jobqueue.Queue("video-processor", payload_serde=MsgpackSerde(), result_serde=MsgpackSerde())
        done: list[Any] = []
        queue.on("completed", lambda id, result: done.append((id, result)))

        @queue.execute
        def thumbnails(job: jobqueue.Job) -> dict[str, Any]:
            return {"thumbnails": [job.payload["frames"][:2]]}

        with queue:
            asked = queue.enqueue_and_wait("v", {"video_id": "v", "frames": b"\x00\x01\x02"}, timeout=120)
            eventually(lambda: done)
        assert asked == {"thumbnails": [b"\x00\x01"]} == queue.get_result("v")
        assert done == [("v", asked)]
        assert queue.enqueue("v", None) == jobqueue.EnqueueResult("completed", None, asked)

    def test_error_handling(self) -> None:
        queue, dead_letters = jobqueue.Queue("jobs"), jobqueue.Queue("dead-letters")

        def on_failed(id: str, error: Exception) -> None:
            if isinstance(error, jobqueue.MaxRetriesError):
                dead_letters.enqueue(id, error.payload)  # type: ignore[attr-defined]  # events have it

        def handler(job: jobqueue.Job) -> None:
            raise RuntimeError("no disk")

        queue.on("failed", on_failed)
        queue.execute(handler)
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
    async def test_a_service_under_test_in_async_code(self) -> None:
        queue = jobqueue.Queue("tests")
        heard: list[str] = []
        queue.on("started", lambda: heard.append("started"))
        queue.on("stopped", lambda: heard.append("stopped"))

        @queue.execute
        async def handler(job: jobqueue.Job) -> dict[str, bool]:
            return {"processed": True}

        assert await queue.astop()
        async with queue:
            await queue.astart()
            assert await queue.aenqueue_and_wait("test-1", {"data": "test"}) == {"processed": True}
            first, second = await queue.aenqueue("job-1"), await queue.aenqueue("job-1")
            assert (first.status, second.status in ("duplicate", "completed")) == ("queued", True)
            assert await queue.aupdate_result_ttl("test-1", 60_000) == jobqueue.UpdateResultTTLResult("updated")
            assert await queue.aget_result("test-1") == {"processed": True}
            status = await queue.aget_status("test-1")
            assert status.state == "completed"
            assert await queue.acancel("nobody") == jobqueue.CancelResult("not_found")
        assert heard == ["started", "stopped"]


class TestRules:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_handler_is_told_to_stop(self, is_async: bool) -> None:
        queue = jobqueue.Queue("jobs")
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

    def test_the_reaper_says_stalled_once(self, stack: ExitStack) -> None:
        handle = Handle("jobs", preset="jobqueue", lease_ms=100)
        queue = jobqueue.Queue(handle)
        queue.enqueue("id")
        handle.claim()
        stalled: list[str] = []
        reaper = jobqueue.Reaper(handle)
        reaper.on("stalled", stalled.append)
        other = jobqueue.Reaper("others")
        other.on("stalled", lambda id: stalled.append("another queue's"))
        stack.enter_context(reaper)
        other._events.connect(None)
        stack.callback(other._events.disconnect)
        eventually(lambda: stalled)
        assert reaper.leading
        assert queue.get_status("id").state == "queued"  # type: ignore[union-attr]  # it is there
        assert stalled == ["id"]


class TestEvents:
    def test_of_a_life(self) -> None:
        queue = jobqueue.Queue("jobs")
        queue.execute(lambda job: job.payload)
        heard: list[Any] = []
        for event in ("enqueued", "processing"):
            queue.on(event, lambda id, event=event: heard.append((event, id)))

        async def completed(id: str, result: Any) -> None:
            heard.append(("completed", id, result))

        queue.on("completed", completed)
        queue.on("cancelled", lambda id: heard.append(("cancelled", id)))
        with queue:
            queue.enqueue_and_wait("id", 5)
            eventually(lambda: len(heard) == 3)
        jobqueue.Queue("others").enqueue("another queue's")
        queue.enqueue("after the stop")
        # A quick consumer starts it before the producer has said that it is there.
        assert sorted(heard) == [("completed", "id", 5), ("enqueued", "id"), ("processing", "id")]
        assert [event for event, *_ in heard if event != "enqueued"] == ["processing", "completed"]

    def test_off(self) -> None:
        queue = jobqueue.Queue("jobs")
        heard = hears(queue, "enqueued")
        with queue:
            queue.enqueue("1")
            queue.off("enqueued", heard.append)
            queue.off("enqueued", heard.append)
            queue.enqueue("2")
        assert heard == ["1"]

    def test_a_handler_that_raises_changes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        queue = jobqueue.Queue("jobs")
        heard: list[str] = []
        queue.on("enqueued", lambda id: 1 / 0)
        queue.on("enqueued", heard.append)
        with queue:
            assert queue.enqueue("id").status == "queued"
        assert (heard, "handler of the event enqueued raised" in caplog.text) == (["id"], True)

    def test_a_failed_job_is_no_error_of_the_machinery(self) -> None:
        queue = jobqueue.Queue("jobs", max_retries=1)
        queue.execute(lambda job: 1 / 0)
        heard = hears(queue, "error")
        with queue, pytest.raises(jobqueue.MaxRetriesError):
            queue.enqueue_and_wait("id")
        assert heard == []

    def test_errors_of_the_machinery(self, caplog: pytest.LogCaptureFixture) -> None:
        queue = jobqueue.Queue("jobs")
        heard = hears(queue, "error")
        logger = logging.getLogger("django_leasequeue.worker")
        with queue:
            logger.warning("not an error")
            logger.error("no leases today")
            try:
                raise jobqueue.StorageError("away")
            except jobqueue.StorageError:
                logger.exception("it failed")
        logger.error("after the stop")
        assert [str(error) for error in heard] == ["no leases today", "away"]
        assert all(isinstance(error, LeaseQueueError) for error in heard)

    def test_refuses_what_is_no_event(self) -> None:
        with pytest.raises(InvalidOption, match="there is no event 'drained'"):
            jobqueue.Queue("jobs").on("drained", print)
        with pytest.raises(InvalidOption):
            jobqueue.Queue("jobs").on("failed", "print")  # type: ignore[arg-type]  # on purpose
        with pytest.raises(InvalidOption):
            jobqueue.Queue("jobs").execute(json)  # type: ignore[type-var]  # on purpose


def test_nothing_is_left_of_a_start_that_fails() -> None:
    queue = jobqueue.Queue("jobs", concurrency=0)
    queue.execute(lambda job: None)
    heard = hears(queue, "enqueued")
    with pytest.raises(InvalidOption, match="concurrency"):
        queue.start()
    queue.enqueue("id")
    assert heard == []
    assert queue.stop()


def test_a_handle_has_its_own_options() -> None:
    with pytest.raises(InvalidOption, match="worker_id"):
        jobqueue.Queue(Handle("jobs"), worker_id="me")

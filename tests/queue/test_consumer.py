"""Consumers: what runs handlers, and what they and others hear of it."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from django_leasequeue import Consumer, Queue, signals
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.queue.function_handler import Execution
from django_leasequeue.tasks import FailForGood
from django_leasequeue.worker.control import JobControl
from tests.queue.conftest import jobqueue, states
from tests.support.heard import hearing
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("native")]


@pytest.fixture
def consume() -> Iterator[Any]:
    with ExitStack() as stack:

        def start(queue: Queue, handler: Any, **options: Any) -> Consumer:
            options = {"reaper": False, "drain_timeout": 5.0, **options}
            consumer = Consumer(queue, handler, **options).start()
            stack.callback(consumer.stop, 1)
            return consumer

        yield start


@pytest.fixture
def heard() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    names = ("enqueued", "started", "completed", "failing", "failed", "stalled", "cancelled", "dead_lettered")
    with hearing({name: getattr(signals, name) for name in names}) as log:
        yield log


def said(heard: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [name for name, _ in heard]


class TestStalled:
    @pytest.mark.slow
    def test_hung_runs_are_given_up_one_after_the_other(self, consume: Any) -> None:
        queue = jobqueue(max_deliveries=1, lease_ms=600_000)
        finish = threading.Event()
        running: list[Any] = []

        def hangs(job: Any) -> None:
            running.append(job)
            finish.wait(300)
            running.pop()

        consumer = consume(queue, hangs, concurrency=2, visibility_timeout=0.5)
        try:
            receipts = queue.enqueue_many(range(6))
            eventually(lambda: all(queue.get_status(item).ended for item in receipts), "the end")  # type: ignore[union-attr]
            assert len(running) == 6
            assert consumer.stop(1) is False
        finally:
            finish.set()
        # Their threads end when they do.
        eventually(lambda: not running)
        eventually(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("leasequeue-job")])

    def test_a_stalled_handler_sees_it_and_the_caller_gets_the_second_run(self, consume: Any, heard: Any) -> None:
        queue = jobqueue(lease_ms=9_000)
        reasons: list[str] = []

        def stalls(job: Any, control: JobControl) -> str:
            if job.deliveries == 1:
                # Its node is cut off: somebody else ends the lease, as the database would after a partition.
                with ThreadResult(lambda: queue.requeue_stale(0)) as swept:
                    # The consumer's own claim may be the one that brings the job back.
                    assert swept.value() in (0, 1)
                control.event.wait(120)
                reasons.append(control.reason)
            return f"run {job.deliveries}"

        consume(queue, stalls, concurrency=2)
        assert queue.enqueue_and_wait(1, key="id", timeout=60) == "run 2"
        assert eventually(lambda: reasons, "the abort") == ["lease_lost"]
        assert [info["key"] for name, info in heard if name == "stalled"] == ["id"]
        assert queue.get_status("id").deliveries == 2  # type: ignore[union-attr]  # it is there


class TestLife:
    def test_as_a_context_and_twice(self) -> None:
        queue = jobqueue()
        consumer = Consumer(queue, lambda job: job.payload, reaper=False)
        for number in range(2):
            with consumer:
                assert consumer.running
                assert queue.enqueue_and_wait(number, timeout=120) == number
            assert not consumer.running
        assert consumer.stop()

    def test_a_consumer_takes_part_in_the_reaper_s_election(self) -> None:
        with Consumer(jobqueue(), lambda job: None, reaper=True) as consumer:
            eventually(lambda: consumer._worker._reaper.leading, "leading")  # type: ignore[union-attr]  # it runs


class TestEvents:
    def test_of_a_job_that_completes(self, consume: Any, heard: Any) -> None:
        queue = jobqueue()
        consume(queue, lambda job: {"n": job.payload})
        queue.enqueue(7, key="id", name="resize")
        eventually(lambda: "completed" in said(heard))
        assert said(heard) == ["enqueued", "started", "completed"]
        for name, info in heard:
            assert (info["project"], info["key"], info["name"]) == ("", "id", "resize"), name
        assert (heard[2][1]["result"], heard[2][1]["job"].payload) == ({"n": 7}, 7)

    def test_of_a_job_that_dies(self, consume: Any, heard: Any) -> None:
        def handler(job: Any) -> None:
            raise ValueError("boom")

        queue = jobqueue(max_deliveries=2)
        consume(queue, handler)
        queue.enqueue(1, key="id")
        eventually(lambda: "failed" in said(heard))
        # Told from two threads: a new run may start before the end of the one before is told.
        assert Counter(said(heard)) == Counter(
            {"enqueued": 1, "started": 2, "failing": 1, "failed": 1, "dead_lettered": 1}
        )
        failure = next(info["failure"] for name, info in heard if name == "failed")
        assert (failure.type, failure.message) == ("builtins.ValueError", "boom")

    def test_the_hook_may_change_the_error(self, consume: Any) -> None:
        def handler(job: Any) -> None:
            raise ValueError("boom")

        def hook(execution: Execution) -> None:
            if execution.job.payload == "forgive":
                execution.error = None
                execution.result = "forgiven"
            else:
                execution.error = FailForGood("made terminal")

        queue = jobqueue()
        consume(queue, handler, after_execution=hook)
        assert queue.enqueue_and_wait("forgive", timeout=120) == "forgiven"
        queue.enqueue("condemn", key="id")
        eventually(lambda: states(queue) == "failed")
        assert queue.get_status("id").error == "made terminal"  # type: ignore[union-attr]  # it is there


class TestTheHandler:
    @pytest.mark.parametrize("fails", [False, True])
    def test_progress_of_a_short_job_is_kept(self, consume: Any, fails: bool) -> None:
        def handler(job: Any, control: JobControl) -> None:
            control.set_progress({"percent": 10})
            control.set_progress({"percent": 100})
            if fails:
                raise FailForGood

        queue = jobqueue()
        consume(queue, handler)
        queue.enqueue(1, key="id")
        eventually(lambda: states(queue) in ("completed", "failed"))
        assert queue.get_status("id").progress == {"percent": 100}  # type: ignore[union-attr]  # it is there

    @pytest.mark.parametrize("options", [
        {"handler": "not callable"}, {"handler": print, "concurrency": 0}, {"handler": print, "concurrency": True},
        {"handler": print, "timeout": 0}, {"handler": print, "visibility_timeout": 0},
    ])  # fmt: skip
    def test_refuses_wrong_arguments(self, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidOption):
            Consumer("images", **options)

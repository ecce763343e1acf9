"""``get_result``: what Django's API says of a job in every stage of its life; results are cancelled and waited for."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, transaction
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine import Ending, NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import InvalidOption, JobCancelled, JobFailed, MaxRetries, WaitTimeout
from django_leasequeue.models import LiveJob, Queue
from django_leasequeue.notify.replies import get_hub
from django_leasequeue.tasks import Limit, TaskNotFound, chain
from django_leasequeue.tasks.api import TaskResultDoesNotExist, TaskResultStatus, task_backends
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually
from tests.tasks import samples
from tests.tasks.django_api import BACKEND
from tests.tasks.helpers import NODE, claim, run_one, stored

pytestmark = pytest.mark.django_db


def test_a_running_task(clock: Clock) -> None:
    enqueued = samples.add.enqueue(1)
    clock.advance(seconds=5)
    claim()
    result = stored(enqueued)
    assert result.status == TaskResultStatus.RUNNING
    assert result.started_at == result.last_attempted_at == clock.now
    assert (result.finished_at, result.worker_ids, result.attempts) == (None, ["worker-1"], 1)


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1, {"b": None}]}, "ü\n\\u0000", 1.5, True, 2**70])
def test_return_values_come_back(value: Any) -> None:
    enqueued = samples.echo.enqueue(value)
    run_one()
    assert stored(enqueued).return_value == value


def test_a_failed_attempt_that_will_be_tried_again(clock: Clock) -> None:
    enqueued = samples.fail.enqueue("word")
    assert run_one() == "failing"
    result = stored(enqueued)
    assert result.status == TaskResultStatus.READY
    assert (result.worker_ids, result.attempts, result.finished_at) == (["worker-1"], 1, None)
    (error,) = result.errors
    assert error.exception_class is ValueError
    assert "raise ValueError(message)\nValueError: word\n" in error.traceback


def test_workers_of_attempts_that_are_forgotten_are_blank(clock: Clock) -> None:
    enqueued = samples.fail.using(max_attempts=23).enqueue()
    for number in range(23):
        run_one(node=f"worker-{number}")
        clock.advance(hours=1)
    result = stored(enqueued)
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 23)
    assert result.worker_ids == ["", "", "", *(f"worker-{number}" for number in range(3, 23))]
    assert len(result.errors) == 20


def test_a_dead_letter_in_a_topic_of_its_own_has_failed(clock: Clock) -> None:
    engine.run(engine.create("graveyard", preset="topics", type="log"))
    engine.run(engine.create("mail", preset="django", dead_letter="graveyard"))
    enqueued = samples.fail_twice.using(queue_name="mail").enqueue()
    run_one("mail")
    clock.advance(minutes=1)
    assert run_one("mail") == "dead"
    result = stored(enqueued)
    assert (result.status, result.task.queue_name) == (TaskResultStatus.FAILED, "mail")
    assert [error.exception_class for error in result.errors][:1] == [ValueError]


def test_a_redriven_task_is_ready_and_remembers(clock: Clock) -> None:
    enqueued = samples.fail_twice.enqueue()
    for _ in range(2):
        run_one()
        clock.advance(minutes=1)
    (dead,) = Queue.objects.raw("SELECT seq AS id FROM leasequeue_job")
    engine.run(engine.redrive("default", [dead.pk]))
    result = stored(enqueued)
    assert (result.status, result.finished_at) == (TaskResultStatus.READY, None)
    assert (len(result.errors), result.attempts) == (2, 2)


@pytest.mark.parametrize(
    "unknown", ["01936d2e-1234-7abc-8def-0123456789ab", "", "nul \x00", "x" * 5_000, 17, None, "\ud800"]
)
def test_what_was_never_enqueued_does_not_exist(unknown: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist, match="There is no result"):
        task_backends["default"].get_result(unknown)


def test_a_result_is_forgotten_in_time(clock: Clock) -> None:
    result = samples.add.enqueue(1)
    run_one()
    clock.advance(hours=23)
    assert stored(result).is_finished
    clock.advance(hours=2)
    with pytest.raises(TaskResultDoesNotExist):
        stored(result)


def test_another_projects_results_do_not_exist() -> None:
    tasks = {"default": {"BACKEND": BACKEND}, "tenant": {"BACKEND": BACKEND, "OPTIONS": {"project": "tenant-1"}}}
    old = samples.add.using(queue_name="old").enqueue(1)
    with override_settings(TASKS=tasks):
        result = samples.add.using(backend="tenant").enqueue(1)
        assert task_backends["tenant"].get_result(result.id).backend == "tenant"
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(result.id)
        assert stored(old).task.queue_name == "old", "though it is not one of QUEUES any more"


def test_a_task_that_is_gone_is_said_to_be_gone() -> None:
    engine.run(engine.enqueue("default", [NewJob(key="id-1", name="tests.tasks.samples.removed")]))
    with pytest.raises(TaskNotFound, match=r"result id-1 is there, but its task is not.*has no such name"):
        task_backends["default"].get_result("id-1")


def soon(work: Callable[[], object], waiting: Callable[[], bool]) -> ThreadResult:
    """Work in a thread of its own, as soon as somebody waits."""
    return ThreadResult(lambda: eventually(waiting) and work())


def told() -> bool:
    return LiveJob.objects.exclude(reply_to=None).exists()


def test_a_cancelled_task_that_nobody_runs_is_gone() -> None:
    result = samples.add.enqueue(1)
    assert result.cancel() is True
    assert not LiveJob.objects.exists()
    assert result.cancel() is False
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_a_task_that_runs_or_has_ended_is_not_cancelled() -> None:
    result = samples.add.enqueue(1)
    claim()
    assert result.cancel() is False
    done = samples.add.enqueue(1)
    run_one()
    assert done.cancel() is False
    assert done.wait() == 1


@pytest.mark.django_db(transaction=True)
class TestWait:
    def test_it_returns_what_the_task_returned_also_in_another_queue(self) -> None:
        result = samples.add.enqueue(1, second=2)
        with soon(run_one, told):
            assert result.wait(timeout=30) == 3
        assert result.status == "SUCCESSFUL"
        result = samples.add.enqueue(7)
        elsewhere = samples.add.get_result(result.id)
        object.__setattr__(elsewhere, "task", samples.add.using(queue_name="elsewhere"))
        with soon(run_one, lambda: get_hub("default").waiting == 1):
            assert elsewhere.wait(timeout=30) == 7

    def test_a_failure_is_raised(self) -> None:
        result = samples.fail.using(max_attempts=1).enqueue("it broke\n  ^ here")
        run_one()
        with pytest.raises(JobFailed, match=r"failed: builtins\.ValueError: it broke") as raised:
            result.wait()
        assert (raised.value.error_type, raised.value.error) == ("builtins.ValueError", "it broke\n  ^ here")
        assert "in fail" in raised.value.traceback

    def test_a_last_attempt_that_its_worker_gave_back_is_a_failure(self) -> None:
        result = samples.add.using(max_attempts=1).enqueue(1)
        (job,) = claim()
        engine.run(engine.nack([job.seq], NODE, tokens=[job.token]))
        with pytest.raises(JobFailed, match="MaxRetries: the last attempt ended, and no error of it is known"):
            result.wait()
        assert [error.exception_class for error in result.errors] == [MaxRetries]

    def test_a_task_that_is_cancelled_meanwhile(self) -> None:
        result = samples.add.enqueue(1)
        with soon(result.cancel, told), pytest.raises(JobCancelled, match="is gone"):
            samples.add.get_result(result.id).wait(timeout=30)

    def test_a_task_that_runs(self) -> None:
        result = samples.add.using(limit=Limit("one", concurrency=1)).enqueue(1)
        other = samples.add.using(limit=Limit("one", concurrency=1)).enqueue(2)
        flow = chain(samples.add.s(3), samples.add.s(4), on_failure=samples.echo.si("sorry")).enqueue()
        held = {job.key: job for job in [*claim(size=9), *claim(size=9)]}
        member = samples.add.get_result(str(flow.members()[0].id))
        assert held.keys() == {result.id, member.id}
        assert (result.cancel(), result.cancel(running=True), result.cancel(running=True)) == (False, True, False)
        assert member.cancel(running=True)
        with pytest.raises(JobCancelled):
            result.wait()
        settled = engine.run(engine.finish([Ending(job.seq, job.token) for job in held.values()], NODE))
        assert set(settled.outcomes.values()) == {engine.Outcome.NOT_FOUND}
        assert [job.key for job in claim(size=9)] == [other.id]
        assert (flow.status.label, flow.status.cancelled, flow.status.open) == ("cancelled", 2, 0)

    def test_not_for_ever(self) -> None:
        result = samples.add.enqueue(1)
        for timeout in (0, -1, float("nan"), "1", True, 86_401):
            with pytest.raises(InvalidOption, match="timeout must be seconds"):
                result.wait(timeout=timeout)
        with transaction.atomic(), pytest.raises(InvalidOption, match="no worker can see"):
            samples.add.enqueue(1).wait()
        with pytest.raises(WaitTimeout, match="It continues"):
            result.wait(timeout=0.1)
        assert run_one() == "completed"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("native")
class TestAwait:
    async def test_it_returns_what_the_task_returned_or_is_cancelled_or_times_out(self) -> None:
        result = await samples.aecho.aenqueue("word")
        with soon(run_one, told):
            assert await result.await_result(timeout=30) == "word"
        result = await samples.aecho.aenqueue("word")
        with pytest.raises(WaitTimeout):
            await result.await_result(timeout=0.1)
        assert await result.acancel() is True
        with pytest.raises(JobCancelled):
            await result.await_result()

    @pytest.mark.slow
    async def test_while_the_database_is_away_it_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        result = await samples.aecho.aenqueue("word")
        usual, calls = type(result).arefresh, 0

        async def away(self: Any) -> None:
            nonlocal calls
            calls += 1
            if 1 < calls < 5:  # the first look is before it listens
                raise OperationalError("away")
            await usual(self)

        monkeypatch.setattr(type(result), "arefresh", away)
        with soon(run_one, lambda: calls >= 4):
            assert await result.await_result(timeout=30) == "word"

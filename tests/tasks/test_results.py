"""``get_result``: what Django's API says of a job in every stage of its life."""

from typing import Any

import pytest
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import LeaseLost
from django_leasequeue.models import Queue
from django_leasequeue.tasks import TaskNotFound
from django_leasequeue.tasks.api import TaskResult, TaskResultDoesNotExist, TaskResultStatus, task_backends
from tests.tasks import samples
from tests.tasks.helpers import claim, run_one

pytestmark = pytest.mark.django_db

BACKEND = "django_leasequeue.tasks.LeaseQueueBackend"


def again(result: "TaskResult[Any]") -> "TaskResult[Any]":
    return task_backends["default"].get_result(result.id)


def test_a_running_task(clock: Clock) -> None:
    enqueued = samples.add.enqueue(1)
    clock.advance(seconds=5)
    claim()
    result = again(enqueued)
    assert result.status == TaskResultStatus.RUNNING
    assert result.started_at == result.last_attempted_at == clock.now
    assert (result.finished_at, result.worker_ids, result.attempts) == (None, ["worker-1"], 1)


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1, {"b": None}]}, "ü\n\\u0000", 1.5, True, 2**70])
def test_return_values_come_back(value: Any) -> None:
    enqueued = samples.echo.enqueue(value)
    run_one()
    assert again(enqueued).return_value == value


def test_a_failed_attempt_that_will_be_tried_again(clock: Clock) -> None:
    enqueued = samples.fail.enqueue("word")
    assert run_one() == "failing"
    result = again(enqueued)
    assert result.status == TaskResultStatus.READY
    assert (result.worker_ids, result.attempts, result.finished_at) == (["worker-1"], 1, None)
    (error,) = result.errors
    assert error.exception_class is ValueError
    assert "raise ValueError(message)\nValueError: word\n" in error.traceback


def test_an_expired_lease_is_an_attempt_with_its_worker(clock: Clock) -> None:
    enqueued = samples.add.enqueue(1, 2)
    claim(node="dies")
    clock.advance(minutes=10)
    assert run_one(node="lives") == "completed"
    result = again(enqueued)
    assert (result.return_value, result.worker_ids) == (3, ["dies", "lives"])
    (error,) = result.errors
    assert error.exception_class is LeaseLost
    assert "the lease expired" in error.traceback


def test_workers_of_attempts_that_are_forgotten_are_blank(clock: Clock) -> None:
    enqueued = samples.fail.using(max_attempts=23).enqueue()
    for number in range(23):
        run_one(node=f"worker-{number}")
        clock.advance(hours=1)
    result = again(enqueued)
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
    result = again(enqueued)
    assert (result.status, result.task.queue_name) == (TaskResultStatus.FAILED, "mail")
    assert [error.exception_class for error in result.errors][:1] == [ValueError]


def test_a_redriven_task_is_ready_and_remembers(clock: Clock) -> None:
    enqueued = samples.fail_twice.enqueue()
    for _ in range(2):
        run_one()
        clock.advance(minutes=1)
    (dead,) = Queue.objects.raw("SELECT seq AS id FROM leasequeue_job")
    engine.run(engine.redrive("default", [dead.pk]))
    result = again(enqueued)
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
    assert again(result).is_finished
    clock.advance(hours=2)
    with pytest.raises(TaskResultDoesNotExist):
        again(result)


def test_another_projects_results_do_not_exist() -> None:
    tasks = {"default": {"BACKEND": BACKEND}, "tenant": {"BACKEND": BACKEND, "OPTIONS": {"project": "tenant-1"}}}
    old = samples.add.using(queue_name="old").enqueue(1)
    with override_settings(TASKS=tasks):
        result = samples.add.using(backend="tenant").enqueue(1)
        assert task_backends["tenant"].get_result(result.id).backend == "tenant"
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(result.id)
        assert again(old).task.queue_name == "old", "though it is not one of QUEUES any more"


def test_a_task_that_is_gone_is_said_to_be_gone() -> None:
    engine.run(engine.enqueue("default", [NewJob(key="id-1", name="tests.tasks.samples.removed")]))
    with pytest.raises(TaskNotFound, match=r"result id-1 is there, but its task is not.*has no such name"):
        task_backends["default"].get_result("id-1")

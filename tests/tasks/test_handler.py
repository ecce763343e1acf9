"""Running tasks: what comes out of a job, and how its failures are handled."""

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine import LeasedJob, NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import JobResult, LiveJob, StoredJob
from django_leasequeue.tasks import RetryLater, current
from django_leasequeue.tasks.api import TaskResultStatus
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.worker.control import JobControl
from django_leasequeue.worker.handler import GiveUp, Retry
from tests.tasks import samples
from tests.tasks.helpers import NODE, claim, run_one

pytestmark = pytest.mark.django_db

BACKEND = "django_leasequeue.tasks.LeaseQueueBackend"


def leased(task: Any, *args: Any, **kwargs: Any) -> LeasedJob:
    """Enqueue one call of a task and claim it."""
    task.enqueue(*args, **kwargs)
    (job,) = claim(task.queue_name)
    return job


def put(**fields: Any) -> LeasedJob:
    """Enqueue a job that no task made, and claim it."""
    engine.run(engine.enqueue("default", [NewJob(**{"key": "id-1", **fields})]))
    (job,) = claim()
    return job


def verdict_of(job: LeasedJob, handler: TaskHandler | None = None) -> tuple[engine.Failure, Retry | GiveUp]:
    handler = handler or TaskHandler()
    control = JobControl(job, NODE)
    try:
        asyncio.run(handler.arun(job, control)) if handler.is_async(job) else handler.run(job, control)
    except BaseException as error:  # noqa: BLE001  (as the worker does)
        return handler.failed(job, error)
    raise AssertionError("it did not fail")


def test_a_sync_task_runs_with_its_arguments() -> None:
    samples.add.enqueue(1, second=2)
    assert run_one() == "completed"
    assert samples.calls == [(1, 2)]
    assert JobResult.objects.get().result == 3


def test_an_async_task_runs_in_the_loop() -> None:
    samples.aecho.enqueue("word")
    assert run_one() == "completed"
    assert (samples.calls, JobResult.objects.get().result) == (["word"], "word")


def test_djangos_own_tasks_run() -> None:
    samples.plain.enqueue(21)
    assert run_one() == "completed"
    assert JobResult.objects.get().result == 42


def test_a_task_of_a_class_runs() -> None:
    samples.Group.nested.enqueue(1)
    assert run_one() == "completed"


@pytest.mark.parametrize("task", [samples.with_context, samples.awith_context])
def test_a_context_knows_the_attempt_and_the_control(task: Any, clock: Clock) -> None:
    result = task.using(priority=3).enqueue("word")
    clock.advance(seconds=2)
    claim(node="dies")
    clock.advance(minutes=5)
    assert run_one() == "completed"
    assert JobResult.objects.get().result == [2, "word", True]
    (context,) = samples.calls
    told = context.task_result
    assert (told.id, told.status, told.args) == (result.id, TaskResultStatus.RUNNING, ["word"])
    assert told.worker_ids == ["dies", NODE]
    assert (told.task.priority, told.task.func, told.backend) == (3, task.func, "default")
    assert told.enqueued_at == clock.now - timedelta(minutes=5, seconds=2)
    assert told.started_at == clock.now - timedelta(minutes=5)
    assert told.last_attempted_at == clock.now
    assert len(told.errors) == 1
    assert context.control.job.key == result.id


def test_current_is_only_there_while_a_task_runs() -> None:
    assert current() is None
    samples.with_context.enqueue("word")
    run_one()
    assert current() is None


@pytest.mark.parametrize("name", ["returns_object", "returns_nan"])
def test_a_result_that_is_not_json_fails_the_attempt(name: str) -> None:
    failure, verdict = verdict_of(leased(getattr(samples, name)))
    assert failure.type == "django_leasequeue.tasks.exceptions.ResultNotSerializable"
    assert f"samples.{name} returned an object of type" in failure.message
    assert verdict == Retry(None)


def test_a_result_that_is_too_large_fails_the_attempt() -> None:
    with override_settings(LEASEQUEUE={"MAX_RESULT_BYTES": 100}):
        failure, _ = verdict_of(leased(samples.echo, "ä" * 60))
    assert "returned more than 100 bytes" in failure.message


def test_results_are_normalised_as_django_does() -> None:
    samples.returns_bytes_and_tuples.enqueue()
    run_one()
    assert JobResult.objects.get().result == {"bytes": "abc", "tuple": [1, 2]}


@pytest.mark.parametrize("task", [samples.fail, samples.afail])
def test_a_failure_tells_class_text_traceback_and_fingerprint(task: Any) -> None:
    failure, verdict = verdict_of(leased(task, "user 17 is gone"))
    assert (failure.type, failure.message) == ("builtins.ValueError", "user 17 is gone")
    lines = failure.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    # It begins where the host's code begins.
    assert "samples.py" in lines[1]
    assert lines[-1] == "ValueError: user 17 is gone"
    assert verdict == Retry(None)
    other, _ = verdict_of(leased(task, "user 4711 is gone"))
    assert other.fingerprint == failure.fingerprint


def test_a_cause_is_part_of_the_traceback() -> None:
    job = leased(samples.fail)
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        failure, _ = TaskHandler().failed(job, error)
    assert "KeyError: 'inner'" in failure.traceback
    assert "direct cause" in failure.traceback


def test_wrong_arguments_fail_the_attempt_with_pythons_word() -> None:
    """Enqueueing refuses them; these were right for the code that enqueued them."""
    job = engine.NewJob({"args": [1, 2, 3]}, name=samples.add.module_path)
    engine.run(engine.enqueue("default", [job]))
    failure, _ = verdict_of(claim()[0])
    assert failure.type == "builtins.TypeError"
    assert "takes from 1 to 2 positional arguments" in failure.message


def test_an_exception_without_a_text_is_kept_all_the_same() -> None:
    failure, _ = verdict_of(leased(samples.fail_unprintably))
    assert failure.type == "tests.tasks.samples.Unprintable"
    assert "its text cannot be had: RuntimeError" in failure.message


def test_exiting_is_failing() -> None:
    failure, _ = verdict_of(leased(samples.exits))
    assert (failure.type, failure.message) == ("builtins.SystemExit", "3")


@pytest.mark.parametrize(
    ("task", "args", "expected"),
    [
        (samples.fail, (), Retry(None)),
        (samples.fail_twice, (), Retry(7_000)),
        (samples.fail_in_steps, (), Retry(1_000)),
        (samples.fail_linearly, (), Retry(3_000)),
        (samples.fail_linearly.using(backoff=2.5), (), Retry(2_500)),
        (samples.fail.using(backoff="fixed"), (), Retry(5_000)),
        (samples.fail_by_message, ("wait",), Retry(60_000)),
        (samples.fail_by_message, ("anything",), Retry(5_000)),
        (samples.fail_by_message, ("stop",), GiveUp()),
        (samples.fail_for_good, (), GiveUp()),
        (samples.retry_later, (90,), Retry(90_000)),
        (samples.retry_later, (10**9,), Retry(86_400_000)),
        (samples.retry_later, (None,), Retry(None)),
        (samples.retry_later.using(backoff=4), (None,), Retry(4_000)),
    ],
)
def test_when_a_failed_task_is_tried_again(task: Any, args: tuple[Any, ...], expected: Any) -> None:
    assert verdict_of(leased(task, *args))[1] == expected


def test_the_backoff_knows_the_attempt(clock: Clock) -> None:
    samples.fail_in_steps.enqueue()
    run_one()
    assert LiveJob.objects.get().available_at == clock.now + timedelta(seconds=1)
    clock.advance(seconds=2)
    run_one()
    assert LiveJob.objects.get().available_at == clock.now + timedelta(seconds=10)


def test_a_backoff_function_sees_the_exception_and_the_result_after_it() -> None:
    job = leased(samples.fail_by_message, "stop")
    verdict_of(job)
    ((exception, result),) = samples.calls
    assert (type(exception), str(exception)) == (ValueError, "stop")
    assert (result.id, result.status, result.attempts) == (job.key, TaskResultStatus.FAILED, 1)
    assert [error.exception_class for error in result.errors] == [ValueError]


def test_a_broken_backoff_function_leaves_it_to_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    _, verdict = verdict_of(leased(samples.fail_with_broken_backoff))
    assert verdict == Retry(None)
    assert "the backoff itself is broken" in caplog.text


@pytest.mark.parametrize("wrong", [-1, float("nan"), "soon"])
def test_retry_later_checks_its_delay(wrong: Any) -> None:
    with pytest.raises(ValueError, match="number of seconds"):
        RetryLater(wrong)


def test_the_timeout_is_the_tasks_or_the_callers() -> None:
    handler = TaskHandler()
    assert handler.timeout(leased(samples.with_timeout)) == (30.0, None)
    assert handler.timeout(leased(samples.with_timeout.using(timeout=2.5))) == (2.5, None)
    assert handler.timeout(leased(samples.add, 1)) == (None, None)
    assert handler.timeout(leased(samples.plain, 1)) == (None, None)


@pytest.mark.parametrize("wrong", ["long", -1, None, [], {}])
def test_a_timeout_that_is_none_is_ignored(wrong: Any) -> None:
    job = put(name="tests.tasks.samples.add", meta={"timeout": wrong})
    assert TaskHandler().timeout(job) == (None, None)


@pytest.mark.parametrize("wrong", ["never", {"kind": "odd"}, {"cmd": 1}, -5])
def test_a_backoff_that_is_none_leaves_it_to_the_queue(wrong: Any) -> None:
    job = put(name="tests.tasks.samples.fail", meta={"backoff": wrong})
    assert verdict_of(job)[1] == Retry(None)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (None, "is not the path of a task"),
        ("add", "There is no module for task 'add'"),
        ("tests.tasks.samples", "is not a task but module"),
        ("tests.tasks.samples.gone", "has no such name"),
        ("tests.tasks.samples.gone.deeper", "has no such name"),
        ("tests.tasks.samples.not_a_task", "is not a task but function"),
        ("tests.tasks.samples._hidden", "is not a task but function"),
        ("os.system", "is not a task"),
        ("no_such_package.tasks.add", "There is no module for task"),
        ("tests.tasks.no_such_module.add", "has no such name"),
        ("tests.tasks.broken_module.add", "cannot be imported: RuntimeError"),
        ("tests.tasks.module_with_missing_import.add", "cannot be imported: No module named 'not_installed'"),
        ("tests.tasks.module_that_exits.add", "cannot be imported: SystemExit"),
        ("tests/tasks;import os", "is not the path of a task"),
        ("a." * 400 + "a", "is not the path of a task"),
    ],
)
def test_only_tasks_are_run(name: str | None, says: str) -> None:
    handler = TaskHandler()
    job = put(name=name)
    assert handler.is_async(job) is False
    assert handler.timeout(job) == (None, None)
    failure, verdict = verdict_of(job, handler)
    assert failure.type == "django_leasequeue.tasks.exceptions.TaskNotFound"
    assert says in failure.message
    # Another worker may run newer code.
    assert verdict == Retry(None)


def test_a_job_of_another_backend_is_not_run() -> None:
    tasks = {"default": {"BACKEND": BACKEND}, "dummy": {"BACKEND": "tests.tasks.test_handler.OtherBackend"}}
    with override_settings(TASKS=tasks):
        for alias, says in (
            ("dummy", "is not a LeaseQueueBackend"),
            ("missing", "cannot be used"),
            (7, "which is no alias"),
        ):
            engine.run(engine.purge("default", states=["leased"])) if LiveJob.objects.exists() else None
            failure, _ = verdict_of(put(key=f"id-{alias}", name="tests.tasks.samples.add", meta={"backend": alias}))
            assert says in failure.message


class OtherBackend:
    """Stands for any other backend."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self.alias = alias


def test_a_job_of_a_second_backend_of_ours_runs() -> None:
    tasks = {alias: {"BACKEND": BACKEND} for alias in ("default", "second")}
    with override_settings(TASKS=tasks):
        result = samples.with_context.using(backend="second").enqueue("word")
        assert run_one() == "completed"
    assert samples.calls[0].task_result.backend == "second"
    assert StoredJob.objects.get(pk=JobResult.objects.get().pk).key == result.id


@pytest.mark.parametrize("data", [[1, 2], "text", 7, {"values": [1]}, {"args": [1], "extra": 1}])
def test_a_payload_that_is_not_ours_fails_with_a_word(data: Any) -> None:
    failure, _ = verdict_of(put(name="tests.tasks.samples.add", data=data))
    assert 'The payload of a task is {"args": [...]' in failure.message


def test_meta_that_is_not_ours_does_no_harm() -> None:
    job = put(name="tests.tasks.samples.add", data={"args": [1, 2]}, meta={"trace": "x"})
    job = job._replace(meta_json='{"$dead_letter_from": "mail", "trace": "x"}')
    assert json.loads(TaskHandler().run(job, JobControl(job, NODE)) or "") == 3


def test_tasks_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_leasequeue.tasks import handler as module

    looked: list[Any] = []
    real = module.find_entry
    monkeypatch.setattr(module, "find_entry", lambda *args: looked.append(args) or real(*args))
    handler = TaskHandler()
    for _ in range(3):
        job = leased(samples.add, 1)
        handler.is_async(job)
        handler.run(job, JobControl(job, NODE))
    assert len(looked) == 1


def test_last_errors_are_not_kept_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    from django_leasequeue.tasks import announcing

    caplog.set_level(logging.ERROR)
    handler = TaskHandler()
    job = leased(samples.fail_for_good)
    for number in range(announcing._MAX_KEPT + 10):
        handler.failed(job._replace(seq=number), samples.FailForGood("lost its lease before it was settled"))
    assert len(handler._announcer._errors) == announcing._MAX_KEPT

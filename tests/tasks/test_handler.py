"""Running tasks: what comes out of a job, and how its failures are handled."""

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine import LeasedJob, NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.django_executor import DjangoExecutor
from django_leasequeue.exceptions import InvalidOption, NotBegun
from django_leasequeue.models import JobResult
from django_leasequeue.reaper import declarations
from django_leasequeue.tasks import Backoff, RetryLater, TaskNotFound, current, signals
from django_leasequeue.tasks import handler as handler_module
from django_leasequeue.tasks.api import TaskResultStatus
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.tasks.lookup import find_task
from django_leasequeue.worker.control import GiveUp, JobAborted, JobControl, Retry
from django_leasequeue.worker.run import UNSTARTED, failed
from tests.tasks import django_api, samples
from tests.tasks.django_api import BACKEND
from tests.tasks.helpers import NODE, claim, leased, run_one

pytestmark = pytest.mark.django_db


def put(**fields: Any) -> LeasedJob:
    engine.run(engine.enqueue("default", [NewJob(**{"key": "id-1", **fields})]))
    (job,) = claim()
    return job


def run(job: LeasedJob, control: JobControl, handler: TaskHandler) -> str | None:
    return asyncio.run(handler.arun(job, control)) if handler.is_async(job) else handler.run(job, control)


def verdict_of(job: LeasedJob, handler: TaskHandler | None = None) -> tuple[engine.Failure, Retry | GiveUp]:
    handler = handler or TaskHandler()
    try:
        run(job, JobControl(job, NODE), handler)
    except BaseException as error:  # noqa: BLE001  (as the worker does)
        return handler.failed(job, error)
    raise AssertionError("it did not fail")


@pytest.mark.parametrize(("task", "result"), [(samples.aecho, 21), (samples.Group.nested, 22), (samples.plain, 42)])
def test_async_tasks_those_of_a_class_and_djangos_own_run(task: Any, result: Any) -> None:
    task.enqueue(21)
    assert run_one() == "completed"
    assert JobResult.objects.get().result == result
    assert current() is None, "it is there only while a task runs"


@pytest.mark.parametrize("task", [samples.aecho, samples.echo])
def test_a_database_that_refuses_connections_costs_no_attempt(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = leased(task, "word")
    engine.run(engine.release([engine.Release(before.seq, before.token, 0)], NODE))
    (job,) = claim()
    handler, control = TaskHandler(), JobControl(job, NODE)

    def refuse(*_: Any) -> Any:
        raise OperationalError("FATAL: sorry, too many clients already")

    monkeypatch.setattr(DjangoExecutor, "fetch", refuse)
    with pytest.raises(NotBegun, match="too many clients") as caught:
        run(job, control, handler)
    assert failed(handler, job, control, caught.value) == (UNSTARTED, job, control, None, 1_000)
    assert samples.calls == []


@pytest.mark.parametrize("task", [samples.aecho, samples.add])
def test_a_task_does_not_start_after_its_lease_was_lost(task: Any) -> None:
    job = leased(task, "word")
    control = JobControl(job, NODE)
    control.abort("lease_lost")
    with pytest.raises(JobAborted):
        run(job, control, TaskHandler())
    assert samples.calls == []


@pytest.mark.parametrize("task", [samples.with_context, samples.awith_context])
def test_a_context_knows_the_attempt_and_the_control(task: Any, clock: Clock) -> None:
    result = task.using(priority=3).enqueue("word")
    clock.advance(seconds=2)
    claim(node="dies")
    clock.advance(minutes=5)
    # In its own process, where the test sees the call: it is a suspect by now.
    assert run_one(handler=TaskHandler(inside=True)) == "completed"
    assert JobResult.objects.get().result == [2, "word", True]
    (context,) = samples.calls
    told = context.task_result
    assert (told.id, told.status, told.args) == (result.id, TaskResultStatus.RUNNING, ["word"])
    assert told.worker_ids == ["dies", NODE]
    assert (told.task.priority, told.task.func, told.backend) == (3, task.func, "default")
    assert told.enqueued_at == clock.now - timedelta(minutes=5, seconds=2)
    assert told.started_at == clock.now - timedelta(minutes=5)
    assert (told.last_attempted_at, len(told.errors), context.control.job.key) == (clock.now, 1, result.id)


@pytest.mark.parametrize("name", ["returns_object", "returns_nan"])
def test_a_result_that_is_not_json_fails_the_task_at_once(name: str) -> None:
    failure, verdict = verdict_of(leased(getattr(samples, name)))
    assert failure.type == "django_leasequeue.tasks.exceptions.ResultNotSerializable"
    assert f"samples.{name} returned an object of type" in failure.message
    assert verdict == GiveUp()


@pytest.mark.parametrize("task", [samples.fail, samples.afail])
def test_a_failure_tells_class_text_traceback_and_fingerprint(task: Any) -> None:
    failure, verdict = verdict_of(leased(task, "user 1700 is gone"))
    assert (failure.type, failure.message) == ("builtins.ValueError", "user 1700 is gone")
    lines = failure.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    # It begins where the host's code begins.
    assert "samples.py" in lines[1]
    assert lines[-1] == "ValueError: user 1700 is gone"
    assert verdict == Retry(None)
    other, _ = verdict_of(leased(task, "user 4711 is gone"))
    assert other.fingerprint == failure.fingerprint
    try:
        raise ValueError("outer") from KeyError("inner")
    except ValueError as error:
        failure, _ = TaskHandler().failed(leased(task), error)
    assert "KeyError: 'inner'" in failure.traceback
    assert "direct cause" in failure.traceback


@pytest.mark.parametrize(("task", "data", "kind", "words"), [
    # Enqueueing refuses these arguments: they were right for the code that enqueued them.
    (samples.add, {"args": [1, 2, 3]}, "builtins.TypeError", "takes from 1 to 2 positional arguments"),
    (samples.fail_unprintably, None, "tests.tasks.samples.Unprintable", "its text cannot be had: RuntimeError"),
    (samples.exits, None, "builtins.SystemExit", "3"),
])  # fmt: skip
def test_what_else_is_a_failure(task: Any, data: Any, kind: str, words: str) -> None:
    failure, _ = verdict_of(put(name=task.module_path, data=data))
    assert failure.type == kind
    assert words in failure.message


@pytest.mark.parametrize(("task", "args", "expected"), [
    (samples.fail, (), Retry(None)), (samples.fail_twice, (), Retry(7_000)),
    (samples.fail.using(backoff=0), (), Retry(0)), (samples.fail.using(backoff=[0, 1]), (), Retry(0)),
    (samples.fail_in_steps, (), Retry(1_000)), (samples.fail_in_steps.using(backoff=2.5), (), Retry(2_500)),
    (samples.fail_in_steps.using(backoff=Backoff("linear", base=3, max=8)), (), Retry(3_000)),
    (samples.fail.using(backoff="fixed"), (), Retry(5_000)), (samples.fail_by_message, ("wait",), Retry(60_000)),
    (samples.fail_by_message, ("anything",), Retry(5_000)), (samples.fail_by_message, ("stop",), GiveUp()),
    (samples.fail_for_good, (), GiveUp()), (samples.retry_later, (90,), Retry(90_000)),
    (samples.retry_later, (10**9,), Retry(86_400_000)), (samples.retry_later, (None,), Retry(None)),
    (samples.retry_later.using(backoff=4), (None,), Retry(4_000)),
])  # fmt: skip
def test_when_a_failed_task_is_tried_again(task: Any, args: tuple[Any, ...], expected: Any) -> None:
    assert verdict_of(leased(task, *args))[1] == expected


def test_a_backoff_function_sees_the_exception_and_the_result_and_may_break(caplog: pytest.LogCaptureFixture) -> None:
    job = leased(samples.fail_by_message, "stop")
    verdict_of(job)
    ((exception, result),) = samples.calls
    assert (type(exception), str(exception)) == (ValueError, "stop")
    assert (result.id, result.status, result.attempts) == (job.key, TaskResultStatus.FAILED, 1)
    assert [error.exception_class for error in result.errors] == [ValueError]
    assert verdict_of(leased(samples.fail_by_message, "break"))[1] == Retry(None), "it is left to the queue"
    assert "the backoff itself is broken" in caplog.text


def test_the_timeout_is_the_tasks_or_the_callers() -> None:
    handler = TaskHandler()
    assert handler.timeout(leased(samples.with_options)) == (30.0, None)
    assert handler.timeout(leased(samples.with_options.using(timeout=2.5))) == (2.5, None)
    for task in (samples.add, samples.plain):
        assert handler.timeout(leased(task, 1)) == (None, None)
    for wrong in (-1, float("nan"), "soon"):
        with pytest.raises(ValueError, match="number of seconds"):
            RetryLater(wrong)  # type: ignore[arg-type]  # just this is refused


@pytest.mark.parametrize(("name", "says"), [
    (None, "is not the path of a task"), ("add", "'add' is not the path of a task"),
    ("tests.tasks.samples", "is not a task but module"), ("tests.tasks.samples.gone", "has no such name"),
    ("tests.tasks.samples.gone.deeper", "has no such name"),
    ("tests.tasks.samples.not_a_task", "is not a task but function"),
    ("tests.tasks.samples._hidden", "is not a task but function"), ("os.system", "is not below the installed apps"),
    ("no_such_package.tasks.add", "is not below the installed apps"), ("antigravity.fly", "is not below"),
    ("testing.no_app.add", "is not below"), ("testproject.demo.no_such.add", "There is no task"),
    ("tests.tasks.no_such_module.add", "has no such name"),
    ("tests.tasks.broken_module.add", "cannot be imported: RuntimeError"),
    ("tests.tasks.module_with_missing_import.add", "cannot be imported: No module named 'not_installed'"),
    ("tests.tasks.module_that_exits.add", "cannot be imported: SystemExit"),
    ("tests/tasks;import os", "is not the path of a task"), ("a." * 400 + "a", "is not the path of a task"),
])  # fmt: skip
def test_only_tasks_are_run(name: str | None, says: str) -> None:
    handler = TaskHandler(inside=True)
    job = put(name=name)
    assert handler.is_async(job) is False
    assert handler.timeout(job) == (None, None)
    failure, verdict = verdict_of(job, handler)
    expected = "NotATask" if says.endswith("is not the path of a task") else "TaskNotFound"
    assert failure.type == f"django_leasequeue.tasks.exceptions.{expected}"
    assert says in failure.message
    # Another worker may run newer code.
    assert verdict == Retry(None)


@pytest.mark.parametrize("path", ["tests.tasks.broken_module.spring", "tests.tasks.broken_module.nested.spring"])
def test_what_is_not_below_the_modules_of_tasks_is_not_imported(path: str, settings: Any) -> None:
    settings.LEASEQUEUE = {"TASK_MODULES": ["tests.tasks.samples", "tests.tasks.broken"]}
    with pytest.raises(TaskNotFound, match=r"is not below LEASEQUEUE\['TASK_MODULES'\]"):
        find_task(path)
    with pytest.raises(InvalidOption, match="is not below"):
        declarations.find_task(path)
    settings.LEASEQUEUE = {"TASK_MODULES": ["tests.tasks.broken_module"]}
    assert find_task("tests.tasks.samples.add") is samples.add, "it is declared here already"
    with pytest.raises(TaskNotFound, match="RuntimeError"):
        find_task(path)


def test_a_job_of_another_backend_is_not_run() -> None:
    tasks = {"default": {"BACKEND": BACKEND}, "dummy": {"BACKEND": django_api.DUMMY}}
    with override_settings(TASKS=tasks):
        wrong = {"dummy": "is not a LeaseQueueBackend", "missing": "cannot be used", 7: "which is no alias"}
        for alias, says in wrong.items():
            failure, _ = verdict_of(put(key=f"id-{alias}", name="tests.tasks.samples.add", meta={"backend": alias}))
            assert says in failure.message


ADD, FAIL = "tests.tasks.samples.add", "tests.tasks.samples.fail"


def test_what_other_doors_wrote_does_no_harm() -> None:
    for name, *values in (("timeout", "long", -1, None, [], {}), ("deadline", "2030-01-01", -5, None, [1], 0)):
        for number, wrong in enumerate(values):
            assert TaskHandler().timeout(put(key=f"{name}-{number}", name=ADD, meta={name: wrong})) == (None, None)
    for number, wrong in enumerate(("never", {"kind": "odd"}, {"cmd": 1}, -5)):
        assert verdict_of(put(key=f"backoff-{number}", name=FAIL, meta={"backoff": wrong}))[1] == Retry(None)
    for number, data in enumerate(([1, 2], "text", 7, {"values": [1]}, {"args": [1], "extra": 1})):
        failure, _ = verdict_of(put(key=f"payload-{number}", name=ADD, data=data))
        assert 'The payload of a task is {"args": [...]' in failure.message
    job = put(name=ADD, data={"args": [1, 2]}, meta={"trace": "x"})
    job = job._replace(meta_json='{"$dead_letter_from": "mail", "trace": "x"}')
    assert json.loads(TaskHandler().run(job, JobControl(job, NODE)) or "") == 3


def test_tasks_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    real = handler_module.find_entry
    monkeypatch.setattr(handler_module, "find_entry", lambda *args: looked.append(args) or real(*args))
    handler = TaskHandler()
    for _ in range(3):
        job = leased(samples.add, 1)
        run(job, JobControl(job, NODE), handler)
    assert len(looked) == 1


def test_last_errors_are_not_kept_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    handler = TaskHandler()
    job = leased(samples.fail_for_good)
    for number in range(signals._MAX_KEPT + 10):
        handler.failed(job._replace(seq=number), samples.FailForGood("lost its lease before it was settled"))
    assert len(handler._announcer._errors) == signals._MAX_KEPT

"""What Django says of results, contexts and signals, tried on this backend through Django's own names."""

import pickle
from contextlib import ExitStack
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import django
import pytest
from asgiref.sync import sync_to_async
from django.test import TestCase, override_settings

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import LiveJob
from django_leasequeue.tasks import LeaseQueueBackend
from tests.support.heard import connected
from tests.support.threads import ThreadResult
from tests.tasks import django_api, samples
from tests.tasks.django_api import BACKEND, exceptions, signals, tasks
from tests.tasks.helpers import claim, run_one, stored

pytestmark = pytest.mark.django_db


def test_the_four_statuses_and_the_return_value_that_needs_success() -> None:
    assert {status.name for status in tasks.TaskResultStatus} == {"READY", "RUNNING", "FAILED", "SUCCESSFUL"}
    ready, fails, lives = (django_api.double.enqueue(1), samples.fail_for_good.enqueue(), django_api.double.enqueue(2))
    assert stored(ready).status == tasks.TaskResultStatus.READY
    claim()
    assert stored(ready).status == tasks.TaskResultStatus.RUNNING
    for result, status in ((fails, tasks.TaskResultStatus.FAILED), (lives, tasks.TaskResultStatus.SUCCESSFUL)):
        assert not stored(result).is_finished
        with pytest.raises(ValueError, match="not finished"):
            _ = stored(result).return_value
        run_one()
        assert (stored(result).status, stored(result).is_finished) == (status, True)
    assert stored(lives).return_value == 4
    with pytest.raises(ValueError, match="failed"):
        _ = stored(fails).return_value


def test_a_task_that_cannot_start_has_failed() -> None:
    engine.run(engine.enqueue("default", [NewJob(key="id-1", name="tests.tasks.django_api.double", max_deliveries=1)]))
    assert run_one() == "dead"
    result = tasks.default_task_backend.get_result("id-1")
    assert (result.status, result.errors[0].exception_class) == ("FAILED", TypeError)


def test_results_their_parts_and_contexts_cannot_be_changed() -> None:
    result = samples.fail_for_good.enqueue()
    run_one()
    for item, name in ((result, "status"), (stored(result), "id"), (stored(result).errors[0], "traceback")):
        with pytest.raises(FrozenInstanceError):
            setattr(item, name, "other")
    result = django_api.change_context.using(max_attempts=1).enqueue()
    assert run_one() == "dead"
    assert stored(result).errors[0].exception_class is FrozenInstanceError


def test_attempts_count_from_one(clock: Clock) -> None:
    result = django_api.fail_until_third.enqueue()
    for expected in ("failing", "failing", "completed"):
        assert run_one() == expected
        clock.advance(hours=1)
    found = stored(result)
    assert (found.return_value, found.attempts) == (3, 3)
    said = [error.traceback.splitlines()[-1] for error in found.errors]
    assert said == ["ValueError: attempt 1", "ValueError: attempt 2"]


CHANGES: list[dict[str, Any]] = [
    {}, {"priority": -7, "queue_name": "emails"}, {"run_after": timedelta(hours=1)}, {"run_after": timedelta(hours=-1)},
    {"timeout": 2.5, "backoff": [1, 2]}, {"max_attempts": 9, "backoff": "linear"},
]  # fmt: skip


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("task", [django_api.nothing, samples.with_options])
def test_a_result_has_the_task_as_it_was_enqueued(clock: Clock, task: Any, changes: dict[str, Any]) -> None:
    told: list[Any] = []
    changed = task.using(**changes)
    result = changed.enqueue()
    assert result.task == stored(result).task == changed
    clock.advance(hours=2)
    with connected(signals.task_started, lambda task_result, **_: told.extend([task_result.task, stored(result).task])):
        run_one(changed.queue_name)
    assert told[1] == changed, "also while it runs"
    if task is samples.with_options:  # a signal does not tell how often a task is tried that declares no max_attempts
        assert told[0] == changed


def test_a_retry_does_not_look_like_a_run_after(clock: Clock) -> None:
    result = samples.fail_in_steps.enqueue()
    assert run_one() == "failing"
    assert LiveJob.objects.get().available_at > clock.now
    assert stored(result).task == samples.fail_in_steps


@pytest.mark.parametrize("job", [
    {"meta": {"run_after": "soon"}}, {"meta": {"run_after": 7}}, {"meta": {"timeout": "long"}},
    {"meta": {"backoff": {"x": 1}}}, {"data": [1, 2]},
])  # fmt: skip
def test_what_another_door_wrote_does_no_harm(job: dict[str, Any]) -> None:
    engine.run(engine.enqueue("default", [NewJob(key="id-1", name="tests.tasks.samples.add", **job)]))
    result = tasks.default_task_backend.get_result("id-1")
    assert (result.task, result.args, result.kwargs) == (samples.add, [], {})


def test_times_errors_and_workers_of_two_attempts(clock: Clock) -> None:
    result = samples.fail_twice.enqueue()
    enqueued_at = clock.now
    clock.advance(seconds=1)
    assert run_one(node="first") == "failing"
    first = clock.now
    clock.advance(minutes=1)
    assert run_one(node="second") == "dead"
    found = stored(result)
    times = (found.enqueued_at, found.started_at, found.last_attempted_at, found.finished_at)
    assert times == (enqueued_at, first, clock.now, clock.now)
    assert all(time.utcoffset() == timedelta(0) for time in times)
    assert (found.status, found.worker_ids, found.attempts) == ("FAILED", ["first", "second"], 2)
    assert [error.exception_class for error in found.errors] == [ValueError, ValueError]


def test_a_result_stays_as_it_was_read_until_it_is_refreshed() -> None:
    enqueued = django_api.double.enqueue(21)
    read = stored(enqueued)
    run_one()
    for result in (enqueued, read):
        assert (result.status, result.attempts) == ("READY", 0)
        result.refresh()
        assert (result.status, result.attempts, result.return_value) == ("SUCCESSFUL", 1, 42)


def test_a_task_gets_its_own_results_and_the_backend_those_of_all() -> None:
    result = django_api.double.enqueue(1)
    assert django_api.double.get_result(result.id).id == result.id
    assert django_api.double.using(priority=5).get_result(result.id).id == result.id
    assert tasks.default_task_backend.get_result(result.id).task.func is django_api.double.func
    with pytest.raises(exceptions.TaskResultMismatch):
        django_api.describe.get_result(result.id)
    for ask in (django_api.double.get_result, tasks.default_task_backend.get_result):
        with pytest.raises(exceptions.TaskResultDoesNotExist):
            ask("unknown")


@pytest.mark.django_db(transaction=True)
def test_results_are_read_in_another_thread() -> None:
    result = django_api.double.enqueue(1)
    with ThreadResult(lambda: django_api.double.get_result(result.id)) as thread:
        found = thread.value()
    assert (found.id, found.status, found.args) == (result.id, "READY", [1])


@pytest.mark.skipif(django.VERSION < (6, 1), reason="Django's own results can be pickled from 6.1 on")
def test_results_can_be_pickled() -> None:
    result = samples.add.using(priority=3, timeout=2).enqueue(1, 2)
    run_one()
    for given in (result, stored(result)):
        copy = pickle.loads(pickle.dumps(given))
        assert copy == given
    assert copy.return_value == 3


class OwnBackend(LeaseQueueBackend):
    """A backend that a project derived from ours."""


@pytest.mark.parametrize("task", [django_api.double, django_api.adouble])
def test_the_sender_of_signals_is_the_class_of_the_backend(task: Any) -> None:
    told: list[tuple[str, str]] = []

    def listen(name: str) -> Any:
        return lambda task_result, **_: told.append((name, task_result.status))

    both = {"default": {"BACKEND": BACKEND}, "own": {"BACKEND": f"{__name__}.OwnBackend"}}
    with override_settings(TASKS=both), ExitStack() as stack:
        for name in ("task_enqueued", "task_started", "task_finished"):
            signal, of_another = getattr(signals, name), listen(f"{name} of another backend")
            stack.enter_context(connected(signal, listen(name), sender=OwnBackend))
            stack.enter_context(connected(signal, of_another, sender=LeaseQueueBackend))
        task.using(backend="own").enqueue(2)
        assert run_one() == "completed"
    assert told == [("task_enqueued", "READY"), ("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")]


class Async(TestCase):
    async def test_aget_result_of_task_and_backend(self) -> None:
        result = await django_api.adouble.aenqueue(4)
        for ask in (django_api.adouble.aget_result, tasks.default_task_backend.aget_result):
            found = await ask(result.id)
            assert (found.id, found.status, found.args, found.task) == (result.id, "READY", [4], django_api.adouble)
            with pytest.raises(exceptions.TaskResultDoesNotExist):
                await ask("unknown")
        with pytest.raises(exceptions.TaskResultMismatch):
            await django_api.double.aget_result(result.id)

    async def test_arefresh(self) -> None:
        result = await django_api.adouble.aenqueue(4)
        await sync_to_async(claim)()
        assert result.status == "READY"
        await result.arefresh()
        assert result.status == "RUNNING"

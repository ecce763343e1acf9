"""The task class and the decorator."""

import pickle
from datetime import timedelta
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from django_leasequeue.tasks import Backoff, LeaseQueueTask, task
from django_leasequeue.tasks.api import InvalidTask
from tests.tasks import django_api, samples


def work() -> None:
    return None


def test_the_decorator_takes_all_arguments() -> None:
    made = task(
        priority=5, queue_name="mail", backend="default", max_attempts=3, backoff="exponential",
        timeout=timedelta(minutes=1),
    )(work)  # fmt: skip
    assert (made.priority, made.queue_name, made.backend, made.takes_context) == (5, "mail", "default", False)
    assert (made.max_attempts, made.backoff, made.timeout) == (3, Backoff("exponential"), 60.0)


@pytest.mark.skipif((6, 0) <= django.VERSION < (6, 1), reason="Django 6.0's decorator passes nothing on")
def test_djangos_own_decorator_makes_it_too() -> None:
    made = django_api.tasks.task(max_attempts=3, backoff=[1, 2], timeout=4)(work)
    assert isinstance(made, LeaseQueueTask)
    assert (made.max_attempts, made.backoff, made.timeout) == (3, (1, 2), 4.0)


def test_using_changes_a_copy() -> None:
    changed = samples.add.using(max_attempts=4, backoff=2, timeout=9, priority=1, queue_name="other")
    assert (changed.max_attempts, changed.backoff, changed.timeout) == (4, 2, 9.0)
    assert (changed.priority, changed.queue_name, changed.func) == (1, "other", samples.add.func)
    assert samples.add.max_attempts is None
    again = changed.using(timeout=8)
    assert (again.max_attempts, again.backoff, again.timeout) == (4, 2, 8.0)
    assert again.changed == ("max_attempts", "backoff", "timeout", "queue_name")
    # Tasks are values.
    assert samples.add.using(backoff=[1, 2]) == samples.add.using(backoff=(1, 2))
    assert len({samples.add, samples.add.using(timeout=1), samples.add.using(timeout=1)}) == 2
    with pytest.raises(InvalidTask, match="@task"):
        samples.add.using(backoff=samples.by_message)


@pytest.mark.skipif(django.VERSION < (6, 1), reason="Django's own tasks can be pickled from 6.1 on")
def test_tasks_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(samples.add.using(timeout=3)))
    assert copy == samples.add.using(timeout=3)
    assert copy.func is samples.add.func


@pytest.mark.parametrize(("wrong", "says"), [
    ({"max_attempts": 0}, "max_attempts must be a whole number from 1"), ({"max_attempts": 1.5}, "max_attempts"),
    ({"max_attempts": True}, "max_attempts"), ({"max_attempts": 2**31}, "max_attempts"),
    ({"backoff": -1}, "backoff must be"), ({"backoff": "soon"}, "backoff must be one of fixed"),
    ({"timeout": 0}, "more than 0 seconds"), ({"timeout": -1}, "timeout must be"),
    ({"timeout": "long"}, "timeout must be"), ({"priority": 101}, "priority must be"),
    ({"queue_name": "no spaces please"}, "queue_name must be 1 to 255"),
    ({"queue_name": ""}, "queue_name must be 1 to 255"),
])  # fmt: skip
def test_wrong_values_are_refused_where_the_task_is_declared_and_changed(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidTask, match=says):
        task(**wrong)(work)
    with pytest.raises(InvalidTask, match=says):
        samples.add.using(**wrong)


def test_a_context_must_be_the_first_argument() -> None:
    with pytest.raises(InvalidTask, match="context"):
        task(takes_context=True)(work)  # type: ignore[arg-type]  # what is refused is just this


def test_a_function_inside_a_function_is_refused() -> None:
    def local() -> None:
        return None

    with pytest.raises(InvalidTask, match="module level"):
        task(local)


@override_settings(TASKS={"default": {"BACKEND": django_api.IMMEDIATE}})
def test_our_tasks_run_on_other_backends_too() -> None:
    assert samples.add.enqueue(1, 2).return_value == 3
    assert task(max_attempts=3, timeout=5)(work).enqueue().is_finished
    results = samples.add.enqueue_many([(1, 2), {"first": 3}])
    assert [result.return_value for result in results] == [3, 3]
    results = async_to_sync(samples.aecho.aenqueue_many)([("a",), {"value": "b"}])
    assert [result.return_value for result in results] == ["a", "b"]

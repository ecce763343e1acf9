"""The task class and the decorator; when a failed task is tried again, and which calls expire."""

import pickle
from datetime import timedelta
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.tasks import Backoff, LeaseQueueTask, task
from django_leasequeue.tasks.api import InvalidTask, TaskResultDoesNotExist
from django_leasequeue.tasks.backoff import MAX_SECONDS, dump, fixed_delay, load, parse
from tests.tasks import django_api, samples
from tests.tasks.helpers import NODE, claim, run_one


def work() -> None:
    return None


#: Django 6.0's passes nothing on.
DJANGOS = pytest.param(django_api.tasks.task, marks=pytest.mark.skipif((6, 0) <= django.VERSION < (6, 1), reason="no"))


@pytest.mark.parametrize("decorator", [task, DJANGOS], ids=["ours", "Django's"])
def test_the_decorator_takes_all_arguments(decorator: Any) -> None:
    made = decorator(
        priority=5, queue_name="mail", backend="default", max_attempts=3, backoff="exponential",
        timeout=timedelta(minutes=1),
    )(work)  # fmt: skip
    assert isinstance(made, LeaseQueueTask)
    assert (made.priority, made.queue_name, made.backend, made.takes_context) == (5, "mail", "default", False)
    assert (made.max_attempts, made.backoff, made.timeout) == (3, Backoff("exponential"), 60.0)


def test_using_changes_a_copy() -> None:
    changed = samples.add.using(max_attempts=4, backoff=2, timeout=9, priority=1, queue_name="other")
    assert (changed.max_attempts, changed.backoff, changed.timeout) == (4, 2, 9.0)
    assert (changed.priority, changed.queue_name, changed.func) == (1, "other", samples.add.func)
    assert samples.add.max_attempts is None
    again = changed.using(timeout=8)
    assert (again.max_attempts, again.backoff, again.timeout) == (4, 2, 8.0)
    assert again.changed == ("max_attempts", "backoff", "timeout", "queue_name")


def test_tasks_are_values() -> None:
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
    ({"timeout": -1}, "timeout must be"), ({"timeout": "long"}, "timeout must be"),
    ({"timeout_grace": -1}, "timeout_grace must be a number of seconds from 0"),
    ({"deadline": 0}, "deadline must be more than 0 seconds"), ({"deadline": "soon"}, "deadline must be a number"),
    ({"deadline": 1e300}, "deadline must be 0.001 to"), ({"expires": 0}, "expires must be more than 0"),
    ({"expires": -1}, "expires must be a number of seconds from 0"), ({"expires": 1e300}, "expires must be 0.001 to"),
    ({"priority": 101}, "priority must be"), ({"queue_name": "no spaces please"}, "queue_name must be 1 to 255"),
    ({"queue_name": ""}, "queue_name must be 1 to 255"), ({"tags": "customer"}, "tags are a dict"),
    ({"ignore_result": 1}, "ignore_result must be true or false"),
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


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "ends"), [
    ("ValueError", "failing"), ("ConnectionError", "failing"), ("RetryLater", "failing"),
    ("UnicodeError", "failed"), ("KeyError", "failed"),
])  # fmt: skip
def test_exceptions_that_are_tried_again_and_those_that_are_not(name: str, ends: str) -> None:
    samples.fail_with.using(max_attempts=3).enqueue(name)
    assert run_one() == ends


@pytest.mark.parametrize("name", ["autoretry_for", "dont_retry_for"])
@pytest.mark.parametrize("wrong", [(5,), "ValueError"])
def test_what_is_no_exception_class_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidTask, match=f"{name} takes exception classes"):
        task(**{name: wrong})(work)


@pytest.mark.django_db
def test_a_call_that_is_not_started_in_time_is_removed(clock: Clock) -> None:
    short = samples.echo.using(expires=timedelta(minutes=1))
    started, late, kept = short.enqueue(1), short.enqueue(2), samples.echo.enqueue(3)
    (running,) = claim()
    clock.advance(seconds=61)
    (job,) = claim()
    assert (running.key, job.key) == (started.id, kept.id)
    assert engine.run(engine.finish([engine.Ending(running.seq, running.token)], NODE)).ok == []
    with pytest.raises(TaskResultDoesNotExist):
        late.refresh()


@pytest.mark.parametrize(("given", "attempt", "seconds"), [
    (7, 1, 7), (7, 9, 7), (0, 1, 0), (timedelta(minutes=2), 1, 120), ([1, 10, 60], 1, 1), ([1, 10, 60], 2, 10),
    ([1, 10, 60], 8, 60), (Backoff("fixed", base=4), 3, 4), (Backoff("fixed", base=400, max=100), 3, 100),
    (Backoff("linear", base=3, max=8), 2, 6), (Backoff("linear", base=3, max=8), 3, 8),
    (Backoff("exponential", base=5, max=900), 1, 10), (Backoff("exponential", base=5, max=900), 3, 40),
    (Backoff("exponential", base=5, max=900), 5_000, 900), ("exponential", 2, 20), (10**9, 1, MAX_SECONDS),
])  # fmt: skip
def test_the_delay_before_the_next_attempt(given: Any, attempt: int, seconds: float) -> None:
    assert fixed_delay(parse(given), attempt) == seconds


@pytest.mark.parametrize(("kind", "low", "high"), [("exp_full_jitter", 0, 40), ("exp_equal_jitter", 20, 40)])
def test_jitter_stays_within_its_bounds_and_varies(kind: str, low: float, high: float) -> None:
    delays = [fixed_delay(Backoff(kind, base=5, max=900), 3) for _ in range(500)]
    assert all(low <= delay <= high for delay in delays)
    assert max(delays) - min(delays) > (high - low) / 2


@pytest.mark.parametrize(
    "wrong", ["fibonacci", -1, float("nan"), float("inf"), True, [], [1, -1], ["a"], {}, object(), b"abc"]
)
def test_what_is_no_backoff_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        parse(wrong)
    for numbers in ({"base": -1}, {"max": "long"}, {"base": float("nan")}):
        with pytest.raises(ValueError, match="number of seconds"):
            Backoff("linear", **numbers)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [7, 2.5, [1, 2], "linear", Backoff("exp_full_jitter", base=1, max=2)])
def test_what_using_sets_travels_as_json_but_no_function(given: Any) -> None:
    parsed = parse(given)
    assert load(dump(parsed)) == parsed
    with pytest.raises(ValueError, match="@task"):
        dump(lambda error, result: 1)

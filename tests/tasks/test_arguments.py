"""Arguments that a task does not take are refused where it is enqueued."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from django.test import TestCase

from django_leasequeue.models import LiveJob
from django_leasequeue.tasks import task
from tests.tasks import samples


@task
def keywords(first: int, *, second: int, **rest: int) -> None: ...


@task
def anything(*args: Any) -> None: ...


def without_its_first(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function("given", *args, **kwargs)

    return called


@task
@without_its_first
def decorated(given: str, word: str) -> str:
    return given + word


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("declared", "args", "kwargs", "says"),
    [
        (samples.add, (), {}, r"missing a required argument: 'first'. It takes \(first.*second.*= 0\)"),
        (samples.add, (1, 2, 3), {}, "too many positional arguments"),
        (samples.add, (1,), {"third": 3}, "unexpected keyword argument 'third'"),
        (samples.add, (1,), {"first": 1}, "multiple values for argument 'first'"),
        (samples.with_context, (), {}, r"missing a required argument: 'word'. It takes \(word"),
        (samples.with_context, ("a", "b"), {}, "too many positional arguments"),
        (samples.plain, (), {}, "missing a required argument: 'value'"),
        (keywords, (1,), {}, "missing a required argument: 'second'|'second'"),
    ],
)
def test_wrong_arguments_are_refused(declared: Any, args: Any, kwargs: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says) as told:
        declared.enqueue(*args, **kwargs)
    assert str(told.value).startswith(f"{declared.module_path} cannot be called so: ")
    assert "\n" not in str(told.value)
    assert not LiveJob.objects.exists()


@pytest.mark.django_db
def test_one_wrong_call_of_many_refuses_all() -> None:
    with pytest.raises(TypeError, match="cannot be called so"):
        samples.add.enqueue_many([(1,), (1, 2, 3)])
    assert not LiveJob.objects.exists()


@pytest.mark.django_db
def test_right_arguments_are_taken() -> None:
    samples.add.enqueue(first=1)
    samples.add.enqueue(1, second=2)
    samples.with_context.enqueue("word")
    keywords.enqueue(1, second=2, third=3)
    anything.enqueue(1, 2, 3)
    anything.enqueue()
    decorated.enqueue("word")
    assert LiveJob.objects.count() == 7


class Async(TestCase):
    async def test_async_calls_are_compared_too(self) -> None:
        with self.assertRaisesMessage(TypeError, "too many positional arguments"):
            await samples.aecho.aenqueue(1, 2)

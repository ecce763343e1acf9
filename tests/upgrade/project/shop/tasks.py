"""Tasks of every kind that may begin on one version and end on the other."""

import time
from typing import Any

from django_leasequeue.tasks import FailForGood, current, task


@task
def double(number: int) -> int:
    return 2 * number


@task
def slow(number: int) -> int:
    """Runs while versions change."""
    time.sleep(0.5)
    return 2 * number


@task(takes_context=True)
def flaky(context: Any, number: int) -> int:
    """Fails the first time."""
    if context.attempt == 1:
        raise ValueError("meant to fail once")
    return 2 * number


@task
def doomed(number: int) -> int:
    """Has no attempts left in the end."""
    raise ValueError("meant to fail")


@task
def refused(number: int) -> int:
    raise FailForGood("meant to fail")


def add(number: int, more: int) -> int:
    return number + more


@task
def durable(number: int, pause: float) -> int:
    """Sleeps and waits for an event between its steps."""
    job = current()
    first = job.step("first", add, number, 1)
    job.sleep("pause", seconds=pause)
    second = job.step("second", add, first, 1)
    return second + job.wait_for(f"event {number}")


@task
def total(numbers: list[int]) -> int:
    return sum(numbers)

"""Tasks for the clock. They are only enqueued here, never run."""

from django_leasequeue.tasks import Limit, task


@task(schedulable=True)
def report(*args: object, **kwargs: object) -> None:
    """Takes anything."""


@task(queue_name="elsewhere", priority=5, schedulable=True)
def placed() -> None:
    """Has a queue and a priority of its own."""


@task
def private() -> None:
    """May be scheduled by code and superusers only."""


def plain() -> None:
    """Is no task."""


@task(queue_name="careful", max_attempts=3, key="bill-{number}", limit=Limit("bills", concurrency=2), tags={"of": "b"})
def bill(number: int) -> None:
    """Has a key, a limit, tags and attempts of its own."""

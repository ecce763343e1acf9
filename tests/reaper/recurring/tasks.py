"""Tasks for the clock. They are only enqueued here, never run."""

from django_leasequeue.tasks import task


@task
def report(*args: object, **kwargs: object) -> None:
    """Takes anything."""


@task(queue_name="elsewhere", priority=5)
def placed() -> None:
    """Has a queue and a priority of its own."""


def plain() -> None:
    """Is no task."""

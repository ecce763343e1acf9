"""What the workers do: little, and now and then it fails once, or each time."""

from django_leasequeue.tasks import current, task

from .settings import QUEUE


@task(queue_name=QUEUE)
def work(number: int) -> int:
    """Return the number; one of 20 fails at its first delivery, one of 50 at each."""
    control = current()
    if number % 50 == 0 or (number % 20 == 0 and control.job.deliveries == 1):
        raise ValueError(f"job {number} fails")
    return number

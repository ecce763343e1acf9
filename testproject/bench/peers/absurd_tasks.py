"""The task of django-absurd's driver."""

from django.tasks import task
from django_absurd import get_absurd_context


@task
def five_steps(number: int) -> None:
    """Do five steps."""
    context = get_absurd_context()
    for _ in range(5):
        context.step("step", int)

"""Django's Tasks API by the names that its documentation uses, and tasks declared with nothing else."""

from importlib import import_module
from typing import Any

import django

_ROOT = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"

tasks: Any = import_module(_ROOT)
exceptions: Any = import_module(f"{_ROOT}.exceptions")
signals: Any = import_module(f"{_ROOT}.signals")
base_backend: Any = import_module(f"{_ROOT}.backends.base").BaseTaskBackend

BACKEND = "django_leasequeue.tasks.LeaseQueueBackend"
DUMMY = f"{_ROOT}.backends.dummy.DummyBackend"
IMMEDIATE = f"{_ROOT}.backends.immediate.ImmediateBackend"

# The backport kept two names of its early versions.
InvalidTask: Any = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
InvalidTaskBackend: Any = getattr(exceptions, "InvalidTaskBackend", None) or exceptions.InvalidTaskBackendError


@tasks.task
def double(number: Any) -> Any:
    return number * 2


@tasks.task(priority=2, queue_name="emails")
def send(address: str, subject: str = "") -> str:
    return f"{subject} to {address}"


@tasks.task()
def index_by(key: Any) -> dict[Any, str]:
    return {key: "found"}


@tasks.task
def describe(value: Any) -> str:
    return repr(value)


@tasks.task
def nothing() -> None:
    return None


@tasks.task
async def adouble(number: int) -> int:
    return number * 2


@tasks.task(takes_context=True)
def fail_until_third(context: Any) -> int:
    if context.attempt < 3:
        raise ValueError(f"attempt {context.attempt}")
    return context.attempt


@tasks.task(takes_context=True)
def tell_context(context: Any, word: str) -> list[Any]:
    return [word, context.attempt, context.task_result.id, context.task_result.status]


@tasks.task(takes_context=True)
def change_context(context: Any) -> None:
    context.task_result = None

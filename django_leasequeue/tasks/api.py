"""Django's Tasks API under one name, and its times: ``django.tasks`` on Django 6, ``django_tasks`` on Django 5.2.

Nothing here, and nothing that ``django_leasequeue.tasks`` imports at its top, loads a model: tasks are declared while
Django is still loading its apps.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import django
from django.conf import settings as django_settings
from django.utils import timezone

from ..engine import clock

P = ParamSpec("P")
T = TypeVar("T")

# A type checker does not know Django's version. Django 6 needs Python 3.12: there it takes ``django.tasks``.
if (TYPE_CHECKING and sys.version_info < (3, 12)) or (not TYPE_CHECKING and django.VERSION < (6, 0)):
    from django_tasks import signals as task_signals
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_PRIORITY,
        DEFAULT_TASK_QUEUE_NAME,
        TASK_MAX_PRIORITY,
        TASK_MIN_PRIORITY,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django_tasks.base import Task as GenericTask
    from django_tasks.base import TaskResult as GenericTaskResult
    from django_tasks.exceptions import (
        InvalidTaskError as InvalidTask,
    )
    from django_tasks.exceptions import (
        TaskResultDoesNotExist,
    )
    from django_tasks.utils import normalize_json

    TASKS_LOGGER = "django_tasks"
else:
    from django.tasks import signals as task_signals
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_PRIORITY,
        DEFAULT_TASK_QUEUE_NAME,
        TASK_MAX_PRIORITY,
        TASK_MIN_PRIORITY,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django.tasks.exceptions import (
        InvalidTask,
        TaskResultDoesNotExist,
    )
    from django.utils.json import normalize_json

    class GenericTask(Task, Generic[P, T]):
        """Django's ``Task`` with the type parameters of the backport; Django's own has none at run time."""

        __slots__ = ()

    class GenericTaskResult(TaskResult, Generic[T]):
        """Django's ``TaskResult`` with the type parameter of the backport."""

        __slots__ = ()

    TASKS_LOGGER = "django.tasks"

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "DEFAULT_TASK_PRIORITY",
    "DEFAULT_TASK_QUEUE_NAME",
    "TASKS_LOGGER",
    "TASK_MAX_PRIORITY",
    "TASK_MIN_PRIORITY",
    "BaseTaskBackend",
    "GenericTask",
    "GenericTaskResult",
    "InvalidTask",
    "P",
    "T",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "aware",
    "local",
    "normalize_json",
    "parse_time",
    "task_backends",
    "task_signals",
    "time_after",
]


def local(value: datetime | None) -> datetime | None:
    """Return an aware time as Django gives it: in UTC, or naive in the host's zone without ``USE_TZ``."""
    if value is None:
        return None
    return value.astimezone(UTC) if django_settings.USE_TZ else timezone.make_naive(value)


def aware(value: datetime) -> datetime:
    """Return a time as an aware one; a naive one is in the host's zone."""
    return timezone.make_aware(value) if timezone.is_naive(value) else value


def time_after(delay: timedelta) -> datetime | None:
    """Return the time ``delay`` from now, as Django gives times.

    Raises:
        OverflowError: Python has no such time.
    """
    return local(clock.now() + delay)


def parse_time(text: Any) -> datetime | None:
    """Return the aware time that an ISO 8601 text names; ``None`` if it names none."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return None if timezone.is_naive(found) else found

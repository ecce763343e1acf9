"""Django's Tasks API under one name: ``django.tasks`` on Django 6, the ``django_tasks`` backport on Django 5.2.

Nothing here, and nothing that ``django_leasequeue.tasks`` imports at its top, loads a model: tasks are declared while
Django is still loading its apps.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

import django

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
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
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
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
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
    "normalize_json",
    "task_backends",
    "task_signals",
]

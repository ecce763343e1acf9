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
    import django_tasks as tasks
    from django_tasks import base, exceptions, signals, utils
    from django_tasks.backends import base as backends
    from django_tasks.base import Task

    GenericTask = Task
    GenericTaskResult = base.TaskResult
    InvalidTask = exceptions.InvalidTaskError
    TASKS_LOGGER = "django_tasks"
else:
    from django import tasks
    from django.tasks import base, exceptions, signals
    from django.tasks.backends import base as backends
    from django.tasks.base import Task
    from django.utils import json as utils

    class GenericTask(Task, Generic[P, T]):
        """Django's ``Task`` with the type parameters of the backport; Django's own has none at run time."""

        __slots__ = ()

    class GenericTaskResult(base.TaskResult, Generic[T]):
        """Django's ``TaskResult`` with the type parameter of the backport."""

        __slots__ = ()

    InvalidTask = exceptions.InvalidTask
    TASKS_LOGGER = "django.tasks"

#: ``Task`` is imported by name: an assigned alias would lose its type parameters.
__all__ = ["Task"]

DEFAULT_TASK_BACKEND_ALIAS = base.DEFAULT_TASK_BACKEND_ALIAS
DEFAULT_TASK_PRIORITY = base.DEFAULT_TASK_PRIORITY
DEFAULT_TASK_QUEUE_NAME = base.DEFAULT_TASK_QUEUE_NAME
TASK_MAX_PRIORITY = base.TASK_MAX_PRIORITY
TASK_MIN_PRIORITY = base.TASK_MIN_PRIORITY
TaskContext = base.TaskContext
TaskError = base.TaskError
TaskResult = base.TaskResult
TaskResultDoesNotExist = exceptions.TaskResultDoesNotExist
TaskResultStatus = base.TaskResultStatus
BaseTaskBackend = backends.BaseTaskBackend
normalize_json = utils.normalize_json
# mypy has read its module only in part when it comes here in some orders.
task_backends: tasks.TaskBackendHandler = vars(tasks)["task_backends"]
task_signals = signals

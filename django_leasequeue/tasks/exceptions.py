"""Exceptions that a task raises to control its retries, and errors of finding a task and keeping its result."""

from __future__ import annotations

from datetime import timedelta

from django.db import InterfaceError, OperationalError

from ..engine.limits import seconds_of
from ..exceptions import LeaseQueueError, NotSerializable

#: The database cannot be reached, or not now: nothing that a task has done.
UNREACHED = (OperationalError, InterfaceError)


class RetryLater(Exception):
    """Raised by a task: this attempt failed, try again after ``delay``.

    It counts as an attempt: the last one ends the task like any other failure.

    Args:
        delay: seconds, or a timedelta, up to a day; ``None`` for the delay that the task or its queue has anyway.
        reason: what is kept as the error's message.

    Raises:
        ValueError: the delay is negative or not a number.
    """

    def __init__(self, delay: float | timedelta | None = None, reason: str = "") -> None:
        self.delay = None if delay is None else seconds_of(delay, "the delay of RetryLater")
        super().__init__(reason or ("try again later" if delay is None else f"try again in {self.delay:g} s"))


class FailForGood(Exception):
    """Raised by a task: it failed and is not tried again. Its status becomes ``FAILED`` at once.

    ``raise FailForGood("no such user")``: the text is kept as the error's message.
    """


class DeadlineExceeded(FailForGood, TimeoutError):
    """The ``deadline`` of a task is over, or would be before its next attempt: it failed and is not tried again."""


class TaskNotFound(LeaseQueueError, LookupError):
    """A task that a job names is not found in this process, or may not run here."""


class NotATask(TaskNotFound):
    """A job names no task: something else has enqueued it."""


class ContextNotRestored(LeaseQueueError):
    """The function of ``LEASEQUEUE["CONTEXT"]["RESTORE"]`` failed, before the task ran or after: the attempt failed.

    The task is tried again whatever its ``autoretry_for`` and ``dont_retry_for`` say.
    """


class ResultNotSerializable(NotSerializable, TypeError):
    """A task's return value is not JSON: the task has failed, and is not tried again."""

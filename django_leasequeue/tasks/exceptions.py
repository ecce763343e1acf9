"""What a task raises to say how its failure is to be handled, and what goes wrong before a task runs."""

from __future__ import annotations

from datetime import timedelta

from ..exceptions import LeaseQueueError


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
    """Raised by a task: it failed, and trying again is no use. Its status becomes FAILED at once."""


class TaskNotFound(LeaseQueueError, LookupError):
    """A job names a task that this process cannot find, or that it may not run."""


class ResultNotSerializable(LeaseQueueError, TypeError):
    """A task returned something that is not JSON, or more than a result may hold."""


def seconds_of(value: float | timedelta, what: str) -> float:
    """Return ``value``, a number of seconds or a timedelta, as seconds.

    Raises:
        ValueError: it is negative, infinite or no number.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        raise ValueError(f"{what} must be a number of seconds from 0, or a timedelta; it is {value!r}.")
    return seconds

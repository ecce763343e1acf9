"""Backoff policies: how long a failed task waits before its next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..engine.limits import seconds_of

if TYPE_CHECKING:
    from .api import TaskResult

#: No job is delayed longer than this by a backoff; the engine's own limit.
MAX_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """A delay that grows with the number of attempts; the formulas of a queue's ``backoff`` option.

    Args:
        kind: ``fixed``, ``linear``, ``exponential``, ``exp_equal_jitter`` or ``exp_full_jitter``.
        base: seconds; the unit that grows.
        max: seconds; the delay never gets longer.

    Raises:
        ValueError: the kind is unknown, or a number is not one.
    """

    kind: str = "exp_full_jitter"
    base: float = 5.0
    max: float = 900.0

    def __post_init__(self) -> None:
        if self.kind not in _FORMULAS:
            raise ValueError(f"backoff must be one of {', '.join(_FORMULAS)}; it is {self.kind!r}.")
        seconds_of(self.base, "base of a Backoff")
        seconds_of(self.max, "max of a Backoff")

    def delay(self, attempt: int) -> float:
        """Return how long to wait after an attempt.

        Args:
            attempt: its number, from 1.

        Returns:
            Seconds, at most ``max``.
        """
        return _FORMULAS[self.kind](self, attempt)

    def _cap(self, attempt: int) -> float:
        # 2 ** 40 seconds are beyond every limit.
        return min(self.base * 2.0 ** min(attempt, 40), self.max)


_FORMULAS: dict[str, Callable[[Backoff, int], float]] = {
    "fixed": lambda policy, attempt: min(policy.base, policy.max),
    "linear": lambda policy, attempt: min(policy.base * attempt, policy.max),
    "exponential": Backoff._cap,
    "exp_equal_jitter": lambda policy, attempt: (0.5 + random.random() / 2) * policy._cap(attempt),
    "exp_full_jitter": lambda policy, attempt: random.random() * policy._cap(attempt),
}

#: As in Django's proposal: called with the exception and the task's result as it is after this attempt; ``None`` means
#: that the task is not tried again.
BackoffFunction = Callable[[BaseException, "TaskResult[Any]"], "float | timedelta | None"]

#: Values that ``@task(backoff=...)`` takes: seconds, seconds for each attempt (the last repeats), the name of a kind, a
#: ``Backoff``, or a function.
BackoffLike = float | timedelta | Sequence[float] | str | Backoff | BackoffFunction


def parse(value: Any) -> Any:
    """Return ``value`` in the form that a task keeps: a number, a tuple of numbers, a ``Backoff`` or a function."""
    if isinstance(value, str):
        return Backoff(value)
    if isinstance(value, Backoff) or callable(value):
        return value
    if isinstance(value, (int, float, timedelta)) and not isinstance(value, bool):
        return seconds_of(value, "backoff")
    if isinstance(value, (list, tuple)) and value:
        return tuple(seconds_of(item, "each delay of backoff") for item in value)
    raise ValueError(
        "backoff must be seconds, a list of seconds (one an attempt), the name of a kind"
        f" ({', '.join(_FORMULAS)}), a Backoff, or a function; it is {value!r}."
    )


def dump(value: Any) -> Any:
    """Return a parsed backoff as JSON, for a task whose backoff was set with ``using()``."""
    if isinstance(value, Backoff):
        return {"kind": value.kind, "base": value.base, "max": value.max}
    if callable(value):
        raise ValueError("a backoff function belongs to the task: give it to @task(backoff=...), not to using().")
    return list(value) if isinstance(value, tuple) else value


def load(value: Any) -> Any:
    """Parse the text that ``dump`` wrote."""
    return Backoff(**value) if isinstance(value, dict) else parse(value)


def fixed_delay(value: Any, attempt: int) -> float:
    """Return the seconds that a parsed backoff, not a function, gives after attempt number ``attempt`` (from 1)."""
    if isinstance(value, Backoff):
        value = value.delay(attempt)
    elif isinstance(value, tuple):
        value = value[min(attempt, len(value)) - 1]
    return min(float(value), MAX_SECONDS)

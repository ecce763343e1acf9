"""The engine's time: the database's clock, unless a test holds it; lengths of time in words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from django.utils import timezone


class Clock:
    """A clock that a test moves by hand: while it is held, every statement of this process takes its time from it."""

    def __init__(self, now: datetime | None = None) -> None:
        self.now: datetime = now or datetime.now(UTC)

    def advance(self, **units: float) -> datetime:
        """Move forward, for example ``advance(seconds=30)``; return the new time."""
        self.now += timedelta(**units)
        return self.now


#: The clock that is held, ``None`` for the database's own.
installed: Clock | None = None


def current() -> datetime | None:
    """Return the held time, or ``None`` for the database's own clock."""
    return None if installed is None else installed.now


def now() -> datetime:
    """Return the held time, or this machine's (for waiting and schedules, never for leases)."""
    return datetime.now(UTC) if installed is None else installed.now


def aware(value: datetime) -> datetime:
    """Return a time of a model with its zone: with ``USE_TZ = False`` Django leaves it out."""
    return timezone.make_aware(value) if timezone.is_naive(value) else value


def monotonic() -> float:
    """Return the seconds of a clock that never goes back, and goes on where a test freezes Python's clocks."""
    # freezegun replaces time.monotonic as well: a wait would never be over.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def elapsing() -> float:
    """Return the seconds of the held clock, else of ``monotonic``: for intervals that a test may shorten."""
    return monotonic() if installed is None else installed.now.timestamp()


@contextmanager
def hold(clock: Clock | None = None) -> Iterator[Clock]:
    """Install ``clock`` (a new one by default) for the length of the block."""
    global installed
    before = installed
    installed = clock or Clock()
    try:
        yield installed
    finally:
        installed = before


def span(value: timedelta | float | None) -> str:
    """Return a span of time in one or two units: ``12 ms``, ``3.4 s``, ``5 min``, ``2 h 10 min``, ``3 d 4 h``."""
    if value is None:
        return "–"  # noqa: RUF001  (a dash, not a minus)
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    for size, unit, part, below in ((60, "min", 1, "s"), (3_600, "h", 60, "min"), (86_400, "d", 3_600, "h")):
        whole, rest = divmod(int(seconds), size)
        if seconds < size * (24 if unit == "h" else 60) or unit == "d":
            return f"{whole} {unit} {rest // part} {below}" if rest // part else f"{whole} {unit}"
    raise AssertionError

"""The engine's time: the database's clock, unless a test holds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta


class Clock:
    """A clock that a test moves by hand.

    While it is installed every statement of this process takes its time from here instead of ``clock_timestamp()``.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self.now: datetime = now or datetime.now(UTC)

    def advance(self, **units: float) -> datetime:
        """Move forward, for example ``advance(seconds=30)``; return the new time."""
        self.now += timedelta(**units)
        return self.now


_installed: Clock | None = None


def current() -> datetime | None:
    """Return the held time, or ``None`` for the database's own clock."""
    return None if _installed is None else _installed.now


def now() -> datetime:
    """Return the held time, or this machine's (for waiting and schedules, never for leases)."""
    return datetime.now(UTC) if _installed is None else _installed.now


@contextmanager
def hold(clock: Clock | None = None) -> Iterator[Clock]:
    """Install ``clock`` (a new one by default) for the length of the block."""
    global _installed
    before = _installed
    _installed = clock or Clock()
    try:
        yield _installed
    finally:
        _installed = before

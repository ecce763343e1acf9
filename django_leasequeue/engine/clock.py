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


#: The clock that is held, ``None`` for the database's own.
installed: Clock | None = None


def current() -> datetime | None:
    """Return the held time, or ``None`` for the database's own clock."""
    return None if installed is None else installed.now


def now() -> datetime:
    """Return the held time, or this machine's (for waiting and schedules, never for leases)."""
    return datetime.now(UTC) if installed is None else installed.now


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

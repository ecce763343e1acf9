"""Times, durations and shares as people say them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

#: A row of a gold table, and the rows of all by name.
Row = dict[str, Any]
Rows = Mapping[str, Sequence[Row]]

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def utc(at: datetime) -> datetime:
    """Return a time of Spark's, which bears no zone, as the UTC that it is."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def queue_name(row: Row) -> str:
    """Return the name of a row's queue, with its project."""
    return f"{row['project']}/{row['queue']}" if row.get("project") else str(row["queue"])


def when(at: datetime) -> str:
    """Return a time: ``Thursday 14 March 2030, 09:05``."""
    return f"{utc(at):%A %-d %B %Y, %H:%M}"


def lasted(span: timedelta | float) -> str:
    """Return a duration in its one or two largest units: ``2 days 3 hours``, ``4 minutes``, ``1.5 seconds``."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 120:
        told = f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"
        return f"{told} second{'s' if told != '1' else ''}"
    parts = []
    rest = round(seconds / 60) * 60
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(parts[:2])


def percent(share: float | None) -> str:
    """Return a share: ``37 %``, ``0.4 %``."""
    if share is None:
        return "-"
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def change(this: float | None, last: float | None) -> str:
    """Return a change against the last week: ``+12 %``, ``three times``, ``as before``."""
    if not this or not last:
        return "new" if this else "-"
    ratio = this / last
    if abs(ratio - 1) < 0.005:
        return "as before"
    return f"{ratio:.1f} times" if ratio >= 2 else f"{100 * (ratio - 1):+.0f} %"

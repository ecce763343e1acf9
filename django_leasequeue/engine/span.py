"""Lengths of time in words."""

from __future__ import annotations

from datetime import timedelta


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

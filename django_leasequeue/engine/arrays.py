"""Array parameters as PostgreSQL literals: one type whatever the values, and much faster than adapting lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

EMPTY = "{}"


def integers(values: Iterable[int | None]) -> str:
    """Return ``values`` as the literal of an integer array, null for ``None``."""
    return "{" + ",".join(map(str, values)).replace("None", "NULL") + "}"


def flags(values: Iterable[bool]) -> str:
    """Return ``values`` as the literal of a boolean array."""
    return "{" + ",".join("t" if value else "f" for value in values) + "}"


def texts(values: Iterable[str | None]) -> str:
    """Return ``values`` as the literal of a text array, null for ``None``."""
    quoted = [
        "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values
    ]
    return "{" + ",".join(quoted) + "}"


def binaries(values: Iterable[bytes | None]) -> str:
    """Return ``values`` as the literal of a bytea array (hex format), null for ``None``."""
    return "{" + ",".join(["NULL" if value is None else '"\\\\x' + value.hex() + '"' for value in values]) + "}"


def times(values: Iterable[datetime | None]) -> str:
    """Return aware datetimes as the literal of a timestamptz array, null for ``None``."""
    return "{" + ",".join(["NULL" if value is None else '"' + value.isoformat() + '"' for value in values]) + "}"


def absent(values: Sequence[object]) -> bool:
    """Whether all are null: the column is then sent as an empty array."""
    return all(value is None for value in values)


def optional(values: Sequence[Any], literal: Callable[[Sequence[Any]], str] = integers) -> str:
    """Return ``values`` as a literal of this kind, an empty array if all are null."""
    return EMPTY if absent(values) else literal(values)

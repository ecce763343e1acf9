"""Tables of text for the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows below their heads, columns as wide as they must be; columns of numbers stand to the right."""
    values = [list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in values]
    columns = []
    for number, name in enumerate(head):
        right = bool(values) and all(isinstance(row[number], int | float) for row in values)
        column = [name, *(row[number] for row in cells)]
        width = max(map(len, column))
        columns.append([text.rjust(width) if right else text.ljust(width) for text in column])
    return "\n".join("  ".join(parts).rstrip() for parts in zip(*columns, strict=True))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)

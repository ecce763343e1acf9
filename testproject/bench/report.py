"""The report: a table to read, and JSON to keep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from statistics import median
from typing import Any

from .figures import Figure

#: Changes when a reader of the JSON would have to change.
FORMAT = 1

_MARKS = {True: "reached", False: "missed", None: ""}
_HEADINGS = ("", "median", "lowest", "highest", "ceiling", "ratio", "target")


def number(value: float) -> str:
    """Return a value with three significant digits, thousands with commas."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def table(figures: Iterable[Figure], *, costs: bool = False) -> Iterator[str]:
    """Yield the lines of the table.

    Args:
        figures: in the order in which they are shown.
        costs: whether to show what a job cost beneath each figure.
    """
    for mode, group in groupby(figures, key=lambda figure: figure.mode):
        found = list(group)
        rows = [(mode, *_HEADINGS[1:])] + [_row(figure) for figure in found]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        yield _line(rows[0], widths)
        for figure, row in zip(found, rows[1:], strict=True):
            yield _line(row, widths)
            if figure.label:
                yield f"      beside: {figure.label}"
            if costs and figure.costs:
                yield f"      a job costs: {_costs(figure.costs)}"
                if figure.beside_costs:
                    yield f"      beside:      {_costs(figure.beside_costs)}"
        yield ""


def _row(figure: Figure) -> tuple[str, ...]:
    values = figure.values
    several = len(values) > 1
    target = "" if figure.target is None else f"{figure.target} {_MARKS[figure.met]}".strip()
    return (
        f"  {figure.name}, {figure.unit}",
        number(figure.median),
        number(min(values)) if several else "",
        number(max(values)) if several else "",
        number(median(figure.beside)) if figure.beside else "",
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        target,
    )


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [row[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
    return "  ".join([*cells, row[-1]]).rstrip()


def _costs(costs: dict[str, float | None]) -> str:
    client, server, wal = (costs.get(name) for name in ("client_cpu_us", "server_cpu_us", "wal_bytes"))
    parts = [
        None if client is None else f"{number(client)} us CPU of Python",
        None if server is None else f"{number(server)} us of PostgreSQL",
        None if wal is None else f"{number(wal)} bytes of WAL",
    ]
    return ", ".join(part for part in parts if part)


def summary(figures: Iterable[Figure]) -> str:
    """Return one line about the targets."""
    judged = [figure for figure in figures if figure.met is not None]
    reached = sum(1 for figure in judged if figure.met)
    return f"{reached} of {len(judged)} targets reached." if judged else "No targets in these modes."


def as_json(
    figures: Iterable[Figure],
    environment: dict[str, Any],
    options: dict[str, Any],
    *,
    seconds: float,
    errors: dict[str, str],
    interrupted: bool,
) -> dict[str, Any]:
    """Return the report for JSON."""
    return {
        "format": FORMAT,
        "environment": environment,
        "options": options,
        "seconds": round(seconds, 1),
        "interrupted": interrupted,
        "errors": errors,
        "figures": [figure.as_dict() for figure in figures],
    }

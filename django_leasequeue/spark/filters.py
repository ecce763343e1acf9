"""Filters that Spark hands down, as SQL; what cannot be said exactly stays with Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from psycopg import sql

from .tables import Table

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_COMPARISONS = {
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_ORDERED = frozenset({"GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"})


def split(filters: Iterable[Filter], table: Table) -> tuple[list[sql.Composable], list[Filter]]:
    """Return the SQL conditions of the filters that PostgreSQL applies, and the filters that it does not."""
    taken: list[sql.Composable] = []
    left: list[Filter] = []
    for item in filters:
        condition = _condition(item, table)
        if condition is not None:
            taken.append(condition)
            continue
        left.append(item)
        if (rows := _of_rows(item, table)) is not None:
            taken.append(rows)
    return taken, left


def _of_rows(item: Any, table: Table) -> sql.Composable | None:
    """The rows of the log with any of some jobs; which of their events they are, Spark finds out."""
    kind = type(item).__name__
    if not table.jobwise or getattr(item, "attribute", ()) != ("seq",) or kind not in {"EqualTo", "In"}:
        return None
    seqs = [item.value] if kind == "EqualTo" else list(item.value)
    if not seqs or not all(isinstance(seq, int) for seq in seqs):
        return None
    return sql.SQL("r.low <= {} AND r.high >= {} AND r.seqs && {}::bigint[]").format(
        sql.Literal(max(seqs)), sql.Literal(min(seqs)), sql.Literal(seqs)
    )


def _condition(item: Any, table: Table) -> sql.Composable | None:
    kind = type(item).__name__
    if kind == "Not":
        # Only over a filter that is never null: NOT (null) is null on both sides.
        inner = _condition(item.child, table)
        return None if inner is None else sql.SQL("NOT ({})").format(inner)
    path: tuple[str, ...] = getattr(item, "attribute", ())
    if len(path) != 1 or path[0] not in table.columns:
        return None
    column = table.column(path[0])
    if column.each or column.type.startswith("array"):
        return None
    left = sql.SQL(column.sql)
    if kind == "IsNull":
        return sql.SQL("({}) IS NULL").format(left)
    if kind == "IsNotNull":
        return sql.SQL("({}) IS NOT NULL").format(left)
    if column.type == "binary" or (column.type == "string" and kind in _ORDERED):
        return None  # the database's collation is not Spark's byte order
    if kind in _COMPARISONS:
        right = _literal(item.value)
        return right and sql.SQL("({}) {} {}").format(left, sql.SQL(_COMPARISONS[kind]), right)
    if kind == "In":
        values = [_literal(value) for value in item.value]
        if not values or None in values:
            return None
        return sql.SQL("({}) IN ({})").format(left, sql.SQL(", ").join(value for value in values if value is not None))
    return None


def _literal(value: Any) -> sql.Composable | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | str):
        return None if isinstance(value, str) and "\x00" in value else sql.Literal(value)
    if isinstance(value, datetime):
        # A naive one would be in the session's zone, which is not known here.
        return sql.Literal(value) if value.tzinfo is not None else None
    if isinstance(value, date):
        return None
    return None

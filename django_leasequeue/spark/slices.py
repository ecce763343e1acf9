"""Which rows each task reads: physical slices of a table for a batch read, slices of the event order for a stream.

The lease log has no btree (it would cost 30 MB a million rows), so a slice is a range of pages, or a range of
``(txid, id)`` that the BRIN index on ``txid`` narrows. Readers stop at the horizon (DESIGN section 6): every
transaction below it has ended, so a slice never changes and can be read again with the same result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from ..sql import statement
from .tables import Table

MAX_ID = 2**63 - 1
#: Assumed where PostgreSQL has not counted yet.
_ROWS_PER_PAGE = 70.0


class Point(NamedTuple):
    """A place in the order of events; a reader at a point has read everything up to and with it."""

    txid: int
    id: int


START = Point(0, 0)


class Horizon(NamedTuple):
    """Up to where events may be read now, and on which database system."""

    xmin: int
    system: str


class Leaf(NamedTuple):
    """One table that holds rows: a partition of the lease log, or the table itself."""

    schema: str
    name: str
    pages: int
    rows_per_page: float
    #: The numbers that it may hold (``high`` exclusive); None where anything goes.
    low: int | None
    high: int | None


def horizon(connection: psycopg.Connection[Any]) -> Horizon:
    """Return the number below which every transaction has ended."""
    row = connection.execute(statement("lake/horizon")).fetchone()
    assert row is not None
    return Horizon(*row)


def leaves(connection: psycopg.Connection[Any], relation: str) -> list[Leaf]:
    """Return the tables that hold a relation's rows, in order of their numbers."""
    rows = connection.execute(statement("lake/leaves"), {"relation": relation}).fetchall()
    return [
        Leaf(schema, name, pages, density or _ROWS_PER_PAGE, low, high)
        for schema, name, pages, density, low, high in rows
    ]


def page_ranges(found: list[Leaf], rows: int, at_least: int = 1) -> list[tuple[Leaf, int, int | None]]:
    """Cut tables into ranges of pages of about ``rows`` rows; the last range of each table is open above.

    Args:
        found: the tables.
        rows: rows that one range should have.
        at_least: how many ranges there should be in all, when there are that many pages.
    """
    total = sum(leaf.pages for leaf in found)
    cap = max(1, total // at_least) if at_least > 1 else total or 1
    ranges: list[tuple[Leaf, int, int | None]] = []
    for leaf in found:
        step = max(1, min(cap, int(rows / leaf.rows_per_page)))
        # An empty table among several has no rows yet; the only one may get some before it is read.
        starts = list(range(0, leaf.pages, step)) or ([0] if len(found) == 1 else [])
        for first, after in zip(starts, [*starts[1:], None], strict=False):
            ranges.append((leaf, first, after))
    return ranges


def probe(
    connection: psycopg.Connection[Any], after: Point, until: Horizon, most: int = 256
) -> list[tuple[Point, int]]:
    """Look at evenly spaced pages of the lease log: points in order, and about how many events lie before each.

    The order of pages is nearly the order of events, so this estimates; exactness comes from the points themselves.
    """
    found = leaves(connection, "leasequeue_leaseevent")
    total = sum(leaf.pages for leaf in found)
    step = max(1, total // most)
    seen: list[tuple[Point, float]] = []
    for leaf in found:
        if leaf.pages == 0:
            continue
        query = sql.SQL(statement("lake/probe")).format(table=sql.Identifier(leaf.schema, leaf.name))
        parameters = {"pages": leaf.pages, "step": step, "xmin": until.xmin, "txid": after.txid, "id": after.id}
        for txid, number in psycopg.ClientCursor(connection).execute(query, parameters):
            seen.append((Point(txid, number), step * leaf.rows_per_page))
    seen.sort()
    counted = 0.0
    answer: list[tuple[Point, int]] = []
    for point, rows in seen:
        answer.append((point, int(counted)))
        counted += rows
    return answer


def select(table: Table, names: list[str], where: sql.Composable, source: sql.Composable | None = None) -> sql.Composed:
    """Return the SELECT of some columns of a table, joined with its queue when a column asks for it."""
    columns = [table.column(name) for name in names]
    join = any(column.joins_queue for column in columns) or b"q." in where.as_bytes()
    return sql.SQL("SELECT {columns} FROM {source} r{join} WHERE {where}").format(
        columns=sql.SQL(", ").join(sql.SQL(column.sql) for column in columns),
        source=source or sql.Identifier(table.relation),
        join=sql.SQL(" LEFT JOIN leasequeue_queue q ON q.id = r.queue_id" if join else ""),
        where=where,
    )


def of_pages(first: int, after: int | None) -> sql.Composable:
    """Return the condition of a range of pages."""
    low = sql.SQL("r.ctid >= {}::tid").format(sql.Literal(f"({first},0)"))
    if after is None:
        return low
    return sql.SQL("{} AND r.ctid < {}::tid").format(low, sql.Literal(f"({after},0)"))


def of_events(start: Point, end: Point) -> sql.Composable:
    """Return the condition of the events after ``start`` up to and with ``end``."""
    return sql.SQL("r.txid BETWEEN {} AND {} AND (r.txid, r.id) > ({}, {}) AND (r.txid, r.id) <= ({}, {})").format(
        *(sql.Literal(value) for value in (start.txid, end.txid, *start, *end))
    )

"""The rows that each task reads: physical slices of a table for a batch read, slices of the event order for a stream.

The lease log has no btree (it would cost 30 MB a million rows), so a slice is a range of pages, or a range of
``(txid, id)`` that the BRIN index on ``txid`` narrows. Slices are of whole rows (the events of up to a thousand jobs).
Readers stop at the horizon: every transaction below it has ended and is on disk, so a slice never changes.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from ..exceptions import LeaseQueueError, StorageError
from ..sql import statement
from ..sql.log_notes import waiting_text
from .database import Database, fetch

MAX_ID = 2**63 - 1
#: Assumed where PostgreSQL has not counted yet.
_ROWS_PER_PAGE = 70.0
#: Pages of the lease log that one look at it takes.
_PAGES = 256
#: Seconds to wait for the disk.
_FLUSH = 30.0


class StreamInterrupted(LeaseQueueError):
    """The stream cannot go on without losing or repeating events; the message says what the ways out are."""


class Point(NamedTuple):
    """A place in the order of events; a reader at a point has read everything up to and with it."""

    txid: int
    id: int


START = Point(0, 0)


class Horizon(NamedTuple):
    """Up to where events may be read now, and on which database system."""

    xmin: int
    system: str
    timeline: int


class Leaf(NamedTuple):
    """One table that holds rows: a partition of the lease log, or the table itself."""

    schema: str
    name: str
    pages: int
    rows_per_page: float
    #: The numbers that it may hold (``high`` exclusive); None where anything goes.
    low: int | None
    high: int | None


#: A range of pages of a table: from one up to another (exclusive; None: to its end).
Piece = tuple[Leaf, int, int | None]


def horizon(connection: psycopg.Connection[Any]) -> Horizon:
    """Return the number below which every transaction has ended, and is on disk: a crash takes none of them back.

    ``StreamInterrupted``: the rows of this database were copied into it, and no epoch has begun.
    """
    if (copied := fetch(connection, "epoch_look")[0][0]) is not False:
        ((above,),) = fetch(connection, "lake/above")
        if copied or above:
            raise StreamInterrupted(waiting_text(above))
    ((xmin, system, timeline, place),) = fetch(connection, "lake/horizon")
    if place is not None:
        # A role that may not write waits for the WAL writer, which comes several times a second.
        with suppress(psycopg.errors.InsufficientPrivilege):
            fetch(connection, "lake/flush")
        end = time.monotonic() + _FLUSH
        while not fetch(connection, "lake/flushed", place=place)[0][0]:
            if time.monotonic() > end:
                raise StorageError(f"The server has not written its WAL up to {place} within {_FLUSH:g} s.")
            time.sleep(0.05)
    return Horizon(xmin, system, timeline)


def kept(connection: psycopg.Connection[Any], timeline: int, current: int) -> Point:
    """Return the place up to which no failover or restore from a timeline to the server's has lost events."""
    found = fetch(connection, "timeline_kept", timeline=timeline, current=current)
    return max(START, Point((found[0][1] if found else None) or 0, 0))


def leaves(connection: psycopg.Connection[Any], relation: str) -> list[Leaf]:
    """Return the tables that hold a relation's rows, in order of their numbers."""
    return [
        Leaf(schema, name, pages, density or _ROWS_PER_PAGE, low, high)
        for schema, name, pages, density, low, high in fetch(connection, "lake/leaves", relation=relation)
    ]


def log_leaves(connection: psycopg.Connection[Any]) -> list[Leaf]:
    """Return the partitions of the lease log; their rows a page are events, one a job."""
    found = leaves(connection, "leasequeue_leaseevent")
    counts: dict[str, list[int]] = {leaf.name: [] for leaf in found}
    for leaf, _, events in _look(connection, found):
        counts[leaf.name].append(events)
    known = {name: sum(seen) / len(seen) for name, seen in counts.items() if seen}
    return [leaf._replace(rows_per_page=known.get(leaf.name, leaf.rows_per_page)) for leaf in found]


def _look(connection: psycopg.Connection[Any], found: Sequence[Leaf]) -> list[tuple[Leaf, Point, int]]:
    """Look at evenly spaced pages: where each is in the order of events, and how many it holds."""
    seen = []
    for leaf in found:
        if leaf.pages:
            probed = sql.SQL(statement("lake/probe")).format(table=sql.Identifier(leaf.schema, leaf.name))
            rows = psycopg.ClientCursor(connection).execute(probed, {"step": _step(found), "pages": leaf.pages})
            seen += [(leaf, Point(txid, number), int(events)) for txid, number, events in rows]
    return seen


def _step(found: Sequence[Leaf]) -> int:
    return max(1, sum(leaf.pages for leaf in found) // _PAGES)


def page_ranges(found: list[Leaf], rows: int, at_least: int = 1) -> list[Piece]:
    """Cut tables into ranges of pages of about ``rows`` rows; the last range of each table is open above."""
    cap = max(1, sum(leaf.pages for leaf in found) // at_least)
    ranges: list[Piece] = []
    for leaf in found:
        step = max(1, min(cap, int(rows / leaf.rows_per_page)))
        # An empty table among several has no rows yet; the only one may get some before it is read.
        starts = list(range(0, leaf.pages, step)) or ([0] if len(found) == 1 else [])
        ranges += [(leaf, first, after) for first, after in zip(starts, [*starts[1:], None], strict=False)]
    return ranges


def probe(connection: psycopg.Connection[Any], after: Point, until: Horizon) -> list[tuple[Point, int]]:
    """Look at evenly spaced pages of the lease log: points in order, and about how many events lie before each."""
    found = leaves(connection, "leasequeue_leaseevent")
    seen = sorted((point, events) for _, point, events in _look(connection, found))
    within = [(point, _step(found) * events) for point, events in seen if after < point < Point(until.xmin, 0)]
    before = accumulate((events for _, events in within), initial=0)
    return [(point, counted) for (point, _), counted in zip(within, before, strict=False)]


def of_pages(first: int, after: int | None) -> sql.Composable:
    """Return the condition of a range of pages."""
    low = sql.SQL("p.ctid >= {}::tid").format(sql.Literal(f"({first},0)"))
    if after is None:
        return low
    return sql.SQL("{} AND p.ctid < {}::tid").format(low, sql.Literal(f"({after},0)"))


def of_events(start: Point, end: Point) -> sql.Composable:
    """Return the condition of the events after ``start`` up to and with ``end``."""
    return sql.SQL("p.txid BETWEEN {} AND {} AND (p.txid, p.id) > ({}, {}) AND (p.txid, p.id) <= ({}, {})").format(
        *(sql.Literal(value) for value in (start.txid, end.txid, *start, *end))
    )


class Held(NamedTuple):
    """An exported snapshot and the channel on which tasks say that they are done with it."""

    name: str
    channel: str


def hold(database: Database, readers: int, seconds: int) -> Held:
    """Export a snapshot and hold it until every reader has read, or the time is over, whichever comes first."""
    holder = database.connect(autocommit=False)
    # The server itself ends the session then, so a killed driver never holds back vacuum for longer.
    holder.execute(sql.SQL("SET idle_in_transaction_session_timeout = {}").format(sql.Literal(f"{seconds + 5}s")))
    holder.commit()
    holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    row = holder.execute("SELECT pg_export_snapshot()").fetchone()
    assert row is not None
    held = Held(row[0], "leasequeue_lake_" + secrets.token_hex(8))
    listener = None
    with suppress(psycopg.Error):
        listener = database.connect(read_only=False)
        listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(held.channel)))
    threading.Thread(target=_wait, args=(holder, listener, readers, seconds), daemon=True).start()
    return held


def _wait(
    holder: psycopg.Connection[Any], listener: psycopg.Connection[Any] | None, readers: int, seconds: int
) -> None:
    end = time.monotonic() + seconds
    try:
        if listener is None:  # a standby takes no LISTEN
            time.sleep(seconds)
            return
        while readers > 0 and (left := end - time.monotonic()) > 0:
            readers -= sum(1 for _ in listener.notifies(timeout=left, stop_after=1))
    except psycopg.Error:
        return
    finally:
        holder.close()
        if listener is not None:
            listener.close()


def adopt(connection: psycopg.Connection[Any], name: str) -> None:
    """See what the snapshot saw."""
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    try:
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
    except psycopg.Error as error:
        told = "The snapshot that this read was planned with is over. Plan the read again, give it longer (option"
        told += " snapshotSeconds) or read in one part (option numPartitions = 1)."
        raise StorageError(told, error) from None


def report_read(connection: psycopg.Connection[Any], channel: str) -> None:
    """Say that one reader is done; a standby cannot."""
    with suppress(psycopg.Error):
        connection.autocommit = True
        connection.execute("SELECT pg_notify(%s, '')", [channel])

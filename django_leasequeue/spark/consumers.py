"""Consumers of the lease log, and events that retention dropped before a stream had read them.

The database has a named consumer's position, for retention and operators (models/lake.py). Streams report from Spark's
processes, so nothing here imports Django.

Retention notes the last event that it dropped, in the order of streams. A stream that has not read so far has lost
events, any other none. PostgreSQL counts rows that were deleted by hand. The option ``failOnDataLoss = false`` goes on
without them, and the checkpoint notes it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg

from ..sql.log_notes import DroppedEvents
from .database import fetch
from .slices import START, Point, StreamInterrupted

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
#: No row has a lower number.
NOTHING = -1


class Loss(NamedTuple):
    """Events after one point and up to another (``None``: unknown), in rows numbered below ``below``."""

    after: Point
    to: Point | None
    below: int
    #: Rows that were deleted by hand, by partition: their events are unknown.
    deleted: dict[str, int] = {}

    def what(self) -> str:
        if self.deleted:
            counts = ", ".join(f"{count} from {name}" for name, count in sorted(self.deleted.items()))
            return (
                f"Rows of the lease log were deleted past the trigger that refuses it: in all {counts}. Whether this"
                f" stream had read them (it stands at transaction {self.after.txid}) is not known."
            )
        if self.to is None:
            return (
                f"Partitions of the lease log with rows numbered below {self.below} are gone, and it was not retention"
                f" that dropped them: whether they held events after transaction {self.after.txid}, where this stream"
                " stands, is not known."
            )
        lost = f"after transaction {self.after.txid}, up to row {self.to.id} of transaction {self.to.txid}"
        return f"Retention has dropped events that this stream had not read: {lost}."

    def text(self) -> str:
        return (
            f"{self.what()} To go on without them, run once with the option failOnDataLoss = false (`leasequeue_lake"
            " run --accept-loss`): the checkpoint notes it. A registered consumer (option consumer) is waited for, for"
            " LEASEQUEUE['LAKE']['CONSUMER_LIMIT_DAYS'] days."
        )


def dropped(connection: psycopg.Connection[Any]) -> Point | None:
    """Return the last event that retention dropped, in the order of the stream."""
    ((told, _),) = fetch(connection, "lake/dropped")
    found = DroppedEvents.read(told)
    return None if found.to is None else Point(*found.to)


def behind(connection: psycopg.Connection[Any], point: Point, known: list[Loss]) -> Loss | None:
    """Return what was dropped after a point; None when everything after it is there, or what is not is known."""
    if point == START:
        return None  # a new stream begins with what there is
    ((told, begin),) = fetch(connection, "lake/dropped")
    found = DroppedEvents.read(told)
    if found.to is not None and (to := Point(*found.to)) > point:
        return None if any(loss.to is not None and loss.to >= to for loss in known) else Loss(point, to, found.below)
    rows = deleted(connection)
    if any(all(loss.deleted.get(name, 0) < count for loss in known) for name, count in rows.items()):
        return Loss(point, None, NOTHING, rows)
    if begin is None or begin <= found.below or any(loss.below >= begin for loss in known):
        return None
    place = {"txid": START.txid, "id": START.id, "last_txid": point.txid, "last_id": point.id}
    ((there,),) = fetch(connection, "lake/any", **place)
    # An event that was read is still there, and so are those that come later.
    return None if there else Loss(point, None, begin)


def deleted(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """Return the rows that were deleted from each partition of the log by hand."""
    return dict(fetch(connection, "lake/deleted"))  # type: ignore[arg-type]


def at_begin(connection: psycopg.Connection[Any], offset: dict[str, Any]) -> dict[str, Any]:
    """Return the offset of a new stream: rows that were deleted before it began are no loss of its."""
    rows = deleted(connection)
    return note(offset, {}, Loss(START, None, NOTHING, rows)) if rows else offset


def check_read(connection: psycopg.Connection[Any], after: Point, planned: Point | None) -> None:
    """Make sure that nothing behind a point was dropped while it was read."""
    now = dropped(connection)
    if now is not None and now > after and (planned is None or now > planned):
        raise StreamInterrupted("Retention dropped events while they were read. Start the stream again: it says which.")


def accepted(offset: dict[str, Any]) -> list[Loss]:
    """Return the losses that an offset notes as accepted."""
    return [
        Loss(Point(*lost["after"]), lost["to"] and Point(*lost["to"]), lost["below"], lost.get("deleted", {}))
        for lost in offset.get("lost", ())
    ]


def note(offset: dict[str, Any], before: dict[str, Any], loss: Loss | None) -> dict[str, Any]:
    """Return an offset with the losses that the one before it notes, and with a new one."""
    lost = list(before.get("lost", ()))
    if loss is not None:
        lost.append({**loss._asdict(), "accepted_at": datetime.now(UTC).isoformat(timespec="seconds")})
    return {**offset, "lost": lost} if lost else offset


def report(connection: psycopg.Connection[Any], name: str, point: Point, horizon: int) -> bool:
    """Move a consumer to a point, and return whether retention had stopped waiting for it since the last report."""
    found = fetch(connection, "lake/consumer_report", name=name, txid=point.txid, event=point.id, horizon=horizon)
    return any(given_up for (given_up,) in found)

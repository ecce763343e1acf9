"""``spark.readStream.format("leasequeue")``: the lease log without gaps and without doubles.

The offset is a :class:`~.slices.Point` ``(txid, id)`` of a row of the log; it never splits one. A batch ends below the
horizon: after a crash (Spark's or PostgreSQL's) it has the same events. Spark's checkpoint makes that exactly once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..exceptions import InvalidOption
from . import arrow, consumers, slices, tables
from .consumers import Loss
from .database import Options, fetch, resolve
from .slices import MAX_ID, START, Point, StreamInterrupted
from .source import ROWS_PER_PARTITION, Slice, chosen, query, read

try:  # from pyspark 4.2 on
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = None  # type: ignore[assignment, misc]

logger = logging.getLogger("django_leasequeue.lake")

Offset = dict[str, Any]
#: The way out when a checkpoint does not belong to the database. Spark's file sink passes over the numbers of batches
#: that it finds in a path: with a new checkpoint alone the first batches would be lost.
_ANEW = (
    " a new checkpoint with startingOffset = earliest AND write to a new path (`leasequeue_lake run` does both when"
    " <lake>/_checkpoints/bronze is moved away); events that are in the lake already have the same id, seq and"
    " occurred_at."
)
#: From this limit on a batch may have fewer events than its limit, but no less than this share.
COUNTED, NEAR = 100_000, 0.9
#: Transactions a second from which on the queue is busy; seconds of rest after one of work beside it, of two at most.
BUSY, REST, WORK = 20, 3.0, 2.0
#: When this process last looked at them, how many there had been, and when it went on.
_last = (0.0, 0, 0.0)


@dataclass(eq=False, repr=False, kw_only=True)
class LogSlice(Slice):
    """A slice of the event order, and what had been dropped of the log when it was planned."""

    after: Point
    dropped: Point | None


class EventStream(DataSourceStreamReader):
    """Reads the lease log in micro-batches."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.text("table", "events") != "events":
            raise InvalidOption("Only the table 'events' can be streamed; read jobs and results with spark.read.")
        self.table = tables.table("events", batches=options.flag("batches", False))
        self.columns = chosen(self.table, schema)
        self.database = resolve(options.connection())
        self.rows = options.number("rowsPerPartition", ROWS_PER_PARTITION, 1_000) or ROWS_PER_PARTITION
        self.limit = options.number("maxRowsPerTrigger", None, 1)
        self.starting = options.choice("startingOffset", "earliest", ("earliest", "latest", "consumer"))
        self.consumer = options.text("consumer")
        self.fail_on_data_loss = options.flag("failOnDataLoss", True)
        self.reset_after_failover = options.flag("resetAfterFailover", False)
        self.target: Point | None = None
        if self.consumer is not None and not consumers.NAME.fullmatch(self.consumer):
            told = "A consumer's name is 1 to 64 letters, digits and _.:- and begins with a letter or digit"
            raise InvalidOption(f"{told}; it is {self.consumer!r}.")
        if self.starting == "consumer" and self.consumer is None:
            raise InvalidOption("startingOffset = consumer needs the option 'consumer'.")

    def initialOffset(self) -> Offset:  # noqa: N802  (Spark's name)
        """Return where a new stream starts, and register its consumer there: retention waits from now on."""
        with self.database.connect() as connection:
            until = slices.horizon(connection)
            start = START
            if self.starting == "latest":
                start = _top(until)
            elif self.starting == "consumer":
                found = fetch(connection, "lake/consumer_position", name=self.consumer)
                start = Point(*found[0]) if found else START
            offset = consumers.at_begin(connection, _offset(start, until))
        if self.consumer is not None:
            with self.database.connect(read_only=False) as connection:
                consumers.report(connection, self.consumer, start, until.xmin)
        return offset

    def commit(self, end: Offset) -> None:
        """Move the consumer's position: everything up to ``end`` is in the lake."""
        self._report(_point(end))

    def _end(self) -> Offset:
        with self.database.connect() as connection:
            until = slices.horizon(connection)
        return _offset(_top(until), until)

    def _report(self, point: Point) -> None:
        if self.consumer is None:
            return
        with self.database.connect(read_only=False) as connection:
            until = slices.horizon(connection)
            if consumers.report(connection, self.consumer, point, until.xmin):
                logger.warning("Retention had stopped waiting for the consumer %s; it waits again.", self.consumer)

    def _until(self, connection: psycopg.Connection[Any], start: Offset) -> slices.Horizon:
        """Return the horizon, after making sure that the offset belongs to this database."""
        until = slices.horizon(connection)
        # A database that was restored or upgraded since was on the other system before.
        if start["system"] != until.system:
            ((*_, was_there),) = fetch(connection, "lake/install", system=start["system"])
            if not was_there:
                raise StreamInterrupted(
                    "This database is not the one that the checkpoint was written with: it has another system"
                    " identifier, and its history (leasequeue_timeline) does not name the checkpoint's. Is the address"
                    " right? To read this one, begin" + _ANEW
                )
        if start["txid"] >= until.xmin:
            raise StreamInterrupted(
                f"The checkpoint is at transaction {start['txid']}, but this database has only reached {until.xmin}: it"
                " is an earlier copy, and new events would never be read. Begin" + _ANEW
            )
        return until

    def _after(self, connection: psycopg.Connection[Any], start: Offset, end: Offset) -> Point:
        """Return where to read on from an offset: after a failover or a restore perhaps from what it kept for sure."""
        after, timeline = _point(start), end.get("timeline")
        # Old checkpoints have no timeline.
        if timeline is None or start.get("timeline") in {None, timeline}:
            return after
        kept = slices.kept(connection, start["timeline"], end["timeline"])
        if after <= kept:
            return after
        if not self.reset_after_failover:
            raise StreamInterrupted(
                f"A failover or a restore ({_told(start['timeline'])} before, {_told(timeline)} now) may have lost"
                f" events that this stream has read, from transaction {kept.txid} on. To read on from there, run once"
                " with the option resetAfterFailover = true: some events come twice. Or begin" + _ANEW
            )
        logger.warning("After a failover or a restore the stream reads again from transaction %s on.", kept.txid)
        return kept

    def _latest(self, start: Offset, most: int | None) -> Offset:
        with self.database.connect() as connection:
            until = self._until(connection, start)
            after = self._after(connection, start, _offset(START, until))
            reset = {"reset": list(after)} if after < _point(start) else {}
            loss = self._lost(connection, start, consumers.accepted(start))
            last = top = _top(until) if self.target is None else min(_top(until), self.target)
            if most is not None:
                top = self._limited(connection, after, top, until, most)
            elif after >= top or not _any(connection, after, top):
                top = after
        if loss is not None and top <= after:
            # An empty batch, if there is nothing else: so the decision stands in the checkpoint.
            top = max(last, after)
        elif not reset and top <= after:
            return start  # the same offset when nothing happened: idle traffic makes no batches
        return consumers.note({**_offset(top, until), **reset}, start, loss)

    def _lost(self, connection: psycopg.Connection[Any], start: Offset, accepted: list[Loss]) -> Loss | None:
        """Return what was dropped behind an offset and is not known to be lost yet, if going on is allowed."""
        loss = consumers.behind(connection, _point(start), accepted)
        if loss is not None:
            if self.fail_on_data_loss:
                raise StreamInterrupted(loss.text())
            logger.warning("%s failOnDataLoss is false: the stream goes on.", loss.what())
        return loss

    def _limited(
        self, connection: psycopg.Connection[Any], after: Point, top: Point, until: slices.Horizon, most: int
    ) -> Point:
        """Return the place up to which there are ``most`` events after a point; ``after`` itself if there are none."""
        # Sorting all that is left for each batch would make a long drain quadratic: this says where to stop looking.
        points = slices.probe(connection, after, until)
        if most >= COUNTED:
            # Sorting so many takes as long as reading them: a place that is known will do, if it is near enough.
            # What lies before a point is an estimate: somewhat less, so that it is seldom too much.
            within = [point for point, before in points if before <= most * 0.98 and point < top]
            if within:
                ((count,),) = fetch(connection, "lake/count", **_between(after, within[-1]))
                if most * NEAR <= count <= most:
                    return within[-1]
        bounds = [point for point, before in points if before >= most and point < top]
        for bound in (*bounds[:1], *bounds[4:5], top):
            if found := fetch(connection, "lake/nth", **_between(after, bound), most=most):
                return Point(*found[0])
            if _any(connection, after, bound):
                return bound
        return after

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Cut a batch into slices of the event order."""
        last = _point(end)
        with self.database.connect() as connection:
            # First of all: pyspark 4.1 gives the end of a batch before it tells where the checkpoint stands.
            until = self._until(connection, start)
            first = Point(*end["reset"]) if "reset" in end else self._after(connection, start, end)
            if last <= first:
                return []
            if last.txid >= until.xmin:
                self._until(connection, end)
            self._lost(connection, start, consumers.accepted(end))
            dropped = consumers.dropped(connection)
            marks = [first]
            taken = 0
            for point, before in slices.probe(connection, first, until):
                if point >= last:
                    break
                if before - taken >= self.rows:
                    marks.append(point)
                    taken = before
            pieces = pairwise([*marks, last])
            return [self._slice(connection, low, high, dropped) for low, high in pieces]

    def _slice(self, connection: psycopg.Connection[Any], low: Point, high: Point, dropped: Point | None) -> LogSlice:
        (place,) = self.table.places
        what = (self.table, self.columns, place, sql.Identifier(place.relation), slices.of_events(low, high))
        as_one = query(*what, as_one=True).as_string(connection) if self.rows <= arrow.MOST else None
        return LogSlice(query(*what).as_string(connection), as_one=as_one, after=low, dropped=dropped)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogSlice):
            return
        with self.database.connect() as connection:
            give_way(connection)
            yield from read(connection, partition, self.table, self.columns)
            consumers.check_read(connection, partition.after, partition.dropped)


def give_way(connection: psycopg.Connection[Any]) -> None:
    """Rest before a slice is read, where this process has a niceness and others write to the database."""
    global _last
    looked, begun, since = _last
    ((count,),), now = fetch(connection, "lake/begun"), time.monotonic()
    if looked and count - begun > BUSY * (now - looked) and hasattr(os, "nice") and os.nice(0) > 0:
        time.sleep(REST * min(now - since, WORK))
    _last = now, count, time.monotonic()


def _offset(point: Point, until: slices.Horizon) -> Offset:
    return {"txid": point.txid, "id": point.id, "system": until.system, "timeline": until.timeline}


def _told(timeline: int) -> str:
    """Return the words for a timeline: its upper bits are the epoch."""
    epoch, number = divmod(timeline, 2**32)
    return f"timeline {number}" + (f" of epoch {epoch}" if epoch else "")


def _top(until: slices.Horizon) -> Point:
    """Return the last place that may be read now."""
    return Point(until.xmin - 1, MAX_ID)


def _point(offset: Offset) -> Point:
    # Numbers, never text: '9' sorts behind '10'.
    return Point(int(offset["txid"]), int(offset["id"]))


def _between(after: Point, until: Point) -> dict[str, int]:
    return {"txid": after.txid, "id": after.id, "last_txid": until.txid, "last_id": until.id}


def _any(connection: psycopg.Connection[Any], after: Point, until: Point) -> bool:
    return bool(fetch(connection, "lake/any", **_between(after, until))[0][0])


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    """Return the reader for the pyspark that runs."""
    return (UnlimitedStream if SupportsTriggerAvailableNow is None else LimitedStream)(options, schema)


class UnlimitedStream(EventStream):
    """For pyspark 4.1, which asks for the latest offset without saying from where: every batch takes all there is."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        if self.limit is not None:
            raise InvalidOption("Option maxRowsPerTrigger needs pyspark 4.2 or newer.")
        self._start: Offset | None = None

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802  (Spark's name and older signature)
        """Return the horizon, unless nothing happened since the last answer."""
        self._start = self._end() if self._start is None else self._latest(self._start, None)
        return self._start


if SupportsTriggerAvailableNow is not None:

    class LimitedStream(EventStream, SupportsTriggerAvailableNow):
        """For pyspark 4.2 and newer: rate limits, and batches that end at a target (``availableNow``)."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
            return ReadAllAvailable() if self.limit is None else ReadMaxRows(self.limit)

        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  (Spark's name)
            """Return the end of the next batch, or ``start`` when there is nothing to read."""
            # Spark asks when the batch that ends there is finished. (`commit` comes a batch later, or not at all.)
            self._report(_point(start))
            return self._latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
            """Remember where the log ends now."""
            self.target = _point(self._end())

        def reportLatestOffset(self) -> Offset:  # noqa: N802  (Spark's name)
            return self._end()

"""``spark.read.format("leasequeue")``: events, jobs and results as DataFrames.

Nothing here imports Django, unless the option ``alias`` asks for it on the driver: workers need only psycopg, pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from ..exceptions import InvalidOption
from . import arrow, slices, tables
from .database import READ, STREAM, WRITE, Options, resolve
from .tables import Table

#: Events of one task: some tenths of a second of one short statement.
ROWS_PER_PARTITION = 250_000
#: Bytes of text at a time where a row becomes many, and rows of one batch for Spark.
_JOBWISE = 1_048_576
_BATCH = 16_384


@dataclass(eq=False, repr=False)
class Slice(datasource.InputPartition):
    """The part that one task reads: where, and the whole statement, perhaps also in the form that gives one row."""

    query: str
    snapshot: str | None = None
    channel: str | None = None
    as_one: str | None = None

    def __repr__(self) -> str:
        return f"Slice({self.query!r})"


def chosen(table: Table, schema: StructType) -> list[tuple[str, str]]:
    """Return name and type of the columns that a schema names."""
    if not schema.fields:
        raise InvalidOption("The schema names no column.")
    pairs = []
    for field in schema.fields:
        wanted, given = table.column(field.name).type, field.dataType.simpleString()
        if wanted != given:
            raise InvalidOption(f"Column {field.name!r} of {table.name!r} is {wanted}; the schema says {given}.")
        pairs.append((field.name, wanted))
    return pairs


def _sent(table: Table, columns: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Return what is asked of the database for some columns: name, type, SQL."""
    if table.jobwise:
        return arrow.raw(table, columns)
    return [(name, kind, table.column(name).sql) for name, kind in columns]


def query(
    table: Table,
    columns: list[tuple[str, str]],
    place: tables.Place,
    source: sql.Composable,
    where: sql.Composable,
    more: Sequence[str] = (),
    *,
    as_one: bool = False,
) -> sql.Composed:
    """Return the SELECT of a slice, whose rows :func:`read` takes; ``as_one``: the form that gives them as one row."""
    # `source` is the place's table or a partition of it, `where` is on its columns (alias p), `more` on ours.
    sent = _sent(table, columns)
    texts = arrow.aggregates(sent) if as_one else [text for *_, text in sent]
    join = any("q." in text for text in (*texts, *more))
    return sql.SQL("SELECT {columns} FROM {rows}{join}{where}").format(
        columns=sql.SQL(", ").join(map(sql.SQL, texts)),
        rows=sql.SQL(place.sql).format(source=source, where=where),
        join=sql.SQL(" LEFT JOIN leasequeue_queue q ON q.id = r.queue_id" if join else ""),
        where=sql.SQL(" WHERE " + " AND ".join(more) if more else ""),
    )


def read(
    connection: psycopg.Connection[Any], part: Slice, table: Table, columns: list[tuple[str, str]]
) -> Iterator[pa.RecordBatch]:
    """Run the query of a slice and yield its rows, of the lease log one a job."""
    for rows in _rows(connection, part, _sent(table, columns), arrow.BLOCK if not table.jobwise else _JOBWISE):
        if not table.jobwise:
            yield rows
            continue
        events = arrow.events(rows, columns).cast(arrow.arrow_schema(columns))
        for start in range(0, len(events), _BATCH):
            yield events.slice(start, _BATCH)


def _rows(
    connection: psycopg.Connection[Any], part: Slice, sent: list[tuple[str, str, str]], size: int
) -> Iterator[pa.RecordBatch]:
    if part.as_one is not None:
        try:
            yield from arrow.packed(connection, part.as_one, sent, _BATCH)
            return
        except psycopg.errors.ProgramLimitExceeded:
            pass  # more than one value holds: row by row
    yield from arrow.copied(connection, part.query, [(name, kind) for name, kind, _ in sent], size)


_ORDERED = {"GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<", "LessThanOrEqual": "<="}
_COMPARISONS = {"EqualTo": "=", **_ORDERED}


def pushed(filters: Iterable[datasource.Filter], table: Table) -> tuple[list[sql.Composable], list[datasource.Filter]]:
    """Return the SQL conditions of the filters that PostgreSQL applies, and the filters that it does not."""
    conditions = [(item, _condition(item, table)) for item in filters]
    left = [item for item, condition in conditions if condition is None]
    rows = [_of_rows(item, table) for item in left]
    return [each for each in (*(condition for _, condition in conditions), *rows) if each is not None], left


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
    if isinstance(value, str):
        told = "\x00" not in value
    elif isinstance(value, datetime):
        told = value.tzinfo is not None  # a naive one would be in the session's zone, which is not known here
    else:
        told = isinstance(value, int) and not isinstance(value, bool)
    return sql.Literal(value) if told else None


class LeaseQueueReader(datasource.DataSourceReader):
    """Reads a table in slices. Partitions are planned on the driver; ``read`` runs in the tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.table = tables.table(options.text("table", "events") or "", batches=options.flag("batches", False))
        self.columns = chosen(self.table, schema)
        self.database = resolve(options.connection())
        self.rows = options.number("rowsPerPartition", ROWS_PER_PARTITION, 1_000) or ROWS_PER_PARTITION
        self.parts = options.number("numPartitions", None, 1, 10_000)
        #: Rows of a slice at most.
        self.most = self.rows if self.parts is None else 1_000_000_000
        self.low = options.number("fromId", None, 0, slices.MAX_ID)
        self.high = options.number("toId", None, 0, slices.MAX_ID)
        if (self.low, self.high) != (None, None) and not self.table.append_only:
            raise InvalidOption("fromId and toId choose among events; filter jobs and results by seq.")
        self.snapshot = options.text("snapshot")
        self.snapshot_seconds = options.number("snapshotSeconds", 600, 1, 86_400) or 600
        self.conditions: list[str] = []

    def partitions(self) -> list[datasource.InputPartition]:
        """Plan the slices: page ranges up to the horizon, or (jobs, results) of one snapshot."""
        with self.database.connect() as connection:
            if self.table.append_only:
                return list(self._of_the_log(connection))
            queries = self._of_places(connection)
        if self.snapshot is not None or len(queries) == 1:
            return [Slice(text, self.snapshot) for text in queries]
        # Several statements see one moment only through one snapshot.
        held = slices.hold(self.database, len(queries), self.snapshot_seconds)
        return [Slice(text, held.name, held.channel) for text in queries]

    def _of_the_log(self, connection: psycopg.Connection[Any]) -> Iterator[Slice]:
        # First the horizon, then the pages: what is below it is on them.
        until = slices.horizon(connection).xmin
        found = [
            leaf
            for leaf in slices.log_leaves(connection)
            if not (leaf.low is not None and self.high is not None and leaf.low >= self.high)
            and not (leaf.high is not None and self.low is not None and leaf.high <= self.low)
        ]
        limits = ((until, "p.txid < {}"), (self.low, "p.id >= {}"), (self.high, "p.id < {}"))
        bounds = [sql.SQL(word).format(sql.Literal(limit)) for limit, word in limits if limit is not None]
        for piece in slices.page_ranges(found, self.most, self.parts or 1):
            plain, as_one = (self._query(self.table.places[0], piece, bounds, as_one=one) for one in (False, True))
            fits = self.most <= arrow.MOST
            yield Slice(plain.as_string(connection), as_one=as_one.as_string(connection) if fits else None)

    def _of_places(self, connection: psycopg.Connection[Any]) -> list[str]:
        """Pages of each place; what is small goes together into one statement."""
        places = {place.relation: place for place in self.table.places}
        homes = {leaf: place for name, place in places.items() for leaf in slices.leaves(connection, name)}
        total = max(1, sum(leaf.pages for leaf in homes))
        made: list[list[sql.Composed]] = []
        full = 1.0
        for leaf, first, after in slices.page_ranges(list(homes), self.most, self.parts or 1):
            pages = (leaf.pages if after is None else after) - first
            share = pages * leaf.rows_per_page / self.rows if self.parts is None else pages * self.parts / total
            if not made or full + share > 1:
                made.append([])
                full = 0.0
            full += share
            made[-1].append(self._query(homes[leaf], (leaf, first, after)))
        return [sql.SQL(" UNION ALL ").join(texts).as_string(connection) for texts in made]

    def _query(
        self, place: tables.Place, piece: slices.Piece, bounds: Sequence[sql.Composable] = (), *, as_one: bool = False
    ) -> sql.Composed:
        leaf, first, after = piece
        where = sql.SQL(" AND ").join([slices.of_pages(first, after), *bounds])
        relation = sql.Identifier(leaf.schema, leaf.name)
        return query(self.table, self.columns, place, relation, where, self.conditions, as_one=as_one)

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Slice):
            return  # Spark's stand-in when there is nothing to read
        with self.database.connect(autocommit=partition.snapshot is None) as connection:
            if partition.snapshot is not None:
                slices.adopt(connection, partition.snapshot)
            yield from read(connection, partition, self.table, self.columns)
            if partition.channel is not None:
                connection.rollback()
                slices.report_read(connection, partition.channel)


class FilteringReader(LeaseQueueReader):
    """The same, with filters applied by PostgreSQL. Spark refuses it while pushdown is switched off."""

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802  (Spark's name)
        """Take the filters that SQL says exactly; return the others."""
        taken, left = pushed(filters, self.table)
        self.conditions = [condition.as_string(None) for condition in taken]
        return left


class LeaseQueueDataSource(datasource.DataSource):
    """The data source ``leasequeue``; docs/reference/lake.md lists its options."""

    @classmethod
    def name(cls) -> str:
        return "leasequeue"

    def schema(self) -> str:
        """Return every column of the table; a schema of the user's chooses among them."""
        batches = str(self.options.get("batches", "false")).lower() == "true"
        return tables.table(self.options.get("table", "events"), batches=batches).ddl()

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        options = Options(self.options, READ, "source")
        return (FilteringReader if options.flag("pushdown", False) else LeaseQueueReader)(options, schema)

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802  (Spark's name)
        from .stream import stream_reader

        return stream_reader(Options(self.options, STREAM, "stream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceWriter:
        from .sink import BatchSink

        return BatchSink(Options(self.options, WRITE, "sink"), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> datasource.DataSourceStreamWriter:  # noqa: N802  (Spark's name)
        from .sink import StreamSink

        return StreamSink(Options(self.options, WRITE, "sink"), schema, overwrite)

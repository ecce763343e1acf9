"""``df.write.format("leasequeue")`` and its streaming form: bulk enqueue from DataFrames, exactly once.

Each task copies its rows into a stage table under a fresh part id; the commit on the driver has the engine enqueue
exactly the parts that Spark reports, in one transaction that first takes the write's name. So a failed or repeated task
leaves a part that is not enqueued, and a repeated write or a replayed batch finds its name taken and adds nothing. A
row that cannot be a job is the answer of its task, which names it, and fails the write at its commit: a task that fails
is only tried again. Each value is checked as the engine checks it at the Python door.

Tasks import no Django here.
"""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..exceptions import InvalidOption, LeaseQueueError, PayloadTooLarge, QueueNotFound
from ..job_options import MAX_YEAR, NUMBERS, TEXTS
from ..sql import statement
from .database import Options, fetch, resolve

if TYPE_CHECKING:
    from ..engine.runner import ConnectionExecutor

#: Bytes of one payload unless the settings or maxPayloadBytes say otherwise, and at most.
MAX_PAYLOAD_BYTES = 1_048_576
MOST_PAYLOAD_BYTES = 256 * 1_048_576
#: Rows of the stage that one statement takes, and one transaction with visible = parts.
SIZE, CHUNK = 5_000, 50_000
#: Columns with a meaning of their own -> the Spark types that they may have. All others become the job's data.
SPECIAL = {
    "queue": {"string"}, "key": {"string"}, "name": {"string"}, "tag": {"string"},
    "priority": {"int", "smallint", "tinyint", "bigint"}, "data": {"string"}, "body": {"binary"}, "meta": {"string"},
    "run_at": {"timestamp"}, "ttl_ms": {"bigint", "int"}, "result_ttl_ms": {"bigint", "int"},
    "max_deliveries": {"int"}, "reply_to": {"string"}, "source_seq": {"bigint"},
}  # fmt: skip
#: Bytes of texts, and bounds of numbers.
SHORT = {**TEXTS, "queue": 255}
BOUNDS = {**{name: NUMBERS[name] for name in NUMBERS if name in SPECIAL}, "source_seq": (0, 2**63 - 1)}
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NULL = "\\N"
#: JSON text that begins so is the engine's reference to a large payload; no other has a space in front.
_REFERENCE = ' {"$large":'
#: Columns that together are a payload.
_PAYLOAD = ("data", "meta", "body")
_PLACE = re.compile(r"COPY \w+, line (\d+)(?:, column (\w+))?")


class RowRefused(InvalidOption):
    """A row cannot become a job; the message says which row, which column and why."""


class PayloadRefused(RowRefused, PayloadTooLarge):
    """A row's payload is too large."""


class Rows:
    """The rows of one task on their way into the stage; ``queue`` is that of rows without a column ``queue``."""

    def __init__(self, names: Sequence[str], queue: str, largest: int, *, replay: bool = False) -> None:
        self.names = names
        self.fields = [name for name in names if name not in SPECIAL]
        self.queue = queue
        self.largest = largest
        self.replay = replay
        #: Rows of the batches before, and those of the batch at hand as well.
        self.done = 0
        self.count = 0
        encoder = json.JSONEncoder(default=_json, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        self._encode = encoder.encode

    def lines(self, part: str, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
        """Yield text for COPY, about a megabyte at a time."""
        for batch in batches:
            self.done, self.count = self.count, self.count + batch.num_rows
            buffer = io.StringIO()
            for row in zip(*self._columns(batch), strict=True):
                buffer.write("\t".join((part, *row)) + "\n")
                if buffer.tell() > 1_000_000:
                    yield buffer.getvalue()
                    buffer = io.StringIO()
            yield buffer.getvalue()

    def database_refused(self, error: psycopg.DataError) -> RowRefused:
        """Return what PostgreSQL says of a row that it does not take, in our words."""
        found = _PLACE.search(error.diag.context or "")
        column = f"Column {found[2]!r}: " if found and found[2] else ""
        why = error.diag.message_primary or str(error)
        if error.diag.message_detail:
            why += f" ({error.diag.message_detail})"
        return RowRefused(f"Row {int(found[1]) if found else '?'} of this partition: {column}{why}")

    def _columns(self, batch: pa.RecordBatch) -> list[Sequence[str]]:
        sizes = [0] * batch.num_rows
        columns: list[Sequence[str]] = []
        for name in SPECIAL:
            if name == "data" and self.fields:
                rows = batch.select(self.fields)
                columns.append(self._cells(batch, name, rows, lambda row: _data_text(self._encode(row)), sizes))
            elif name in self.names:
                values = batch.column(batch.schema.get_field_index(name))
                columns.append(self._cells(batch, name, values, self._checks(name), sizes))
            else:
                columns.append([self.queue.translate(_ESCAPES) if name == "queue" else _NULL] * batch.num_rows)
        # A character is at most four bytes.
        for number, size in enumerate(sizes):
            if size * 4 > self.largest and (exact := self._bytes(batch, number)) > self.largest:
                why = f"The payload (data, meta and body together) has {exact} bytes, more than {self.largest} bytes"
                self._refuse(batch, number, PayloadTooLarge(f"{why} (option maxPayloadBytes)."))
        return columns

    def _cells(
        self,
        batch: pa.RecordBatch,
        name: str,
        column: pa.RecordBatch | pa.Array,
        check: Callable[[Any], str],
        sizes: list[int],
    ) -> list[str]:
        cells: list[str] = []
        try:
            values = column.to_pylist()
        except (ValueError, OverflowError):  # a time that is none of Python's: which one it is shows below
            values = (column.slice(number, 1).to_pylist()[0] for number in range(batch.num_rows))
        try:
            cells.extend(_NULL if value is None and name != "queue" else check(value) for value in values)
        except (ValueError, OverflowError) as error:
            self._refuse(batch, len(cells), f"{'' if isinstance(error, InvalidOption) else f'{name}: '}{error}")
        if name in _PAYLOAD:
            for number, cell in enumerate(cells):
                # Of a body two hexadecimal digits each.
                sizes[number] += 0 if cell is _NULL else len(cell) // 2 if name == "body" else len(cell)
        return cells

    def _bytes(self, batch: pa.RecordBatch, number: int) -> int:
        row = batch.slice(number, 1).to_pylist()[0]
        data = self._encode({name: row[name] for name in self.fields}) if self.fields else row.get("data")
        return sum(len(text.encode()) for text in (data, row.get("meta")) if text) + len(row.get("body") or b"")

    def _refuse(self, batch: pa.RecordBatch, number: int, why: object) -> None:
        row = batch.slice(number, 1)
        shown = []
        for name in self.names:
            try:
                value = row.column(row.schema.get_field_index(name)).to_pylist()[0]
            except (ValueError, OverflowError):
                value = "?"
            if value is not None and name not in ("body", "meta"):
                shown.append(f"{name}={str(value)[:40]!r}")
        kind = PayloadRefused if isinstance(why, PayloadTooLarge) else RowRefused
        raise kind(f"Row {self.done + number + 1} of this partition ({', '.join(shown)[:200]}): {why}")

    def _checks(self, name: str) -> Callable[[Any], str]:
        if name in BOUNDS:
            return lambda value: _bounded(name, value)
        checks: dict[str, Callable[[Any], str]] = {
            "data": _data_text,
            "meta": self._meta,
            "body": lambda value: f"\\\\x{value.hex()}",
            "run_at": _time,
            "reply_to": _channel,
            "priority": lambda value: str(max(-(2**31), min(value, 2**31 - 1))),
        }
        return checks.get(name) or (lambda value: _short(name, value))

    def _meta(self, value: str) -> str:
        if not self.replay:
            found = json.loads(value)
            if not isinstance(found, dict):
                raise InvalidOption(f"Column 'meta' must be a JSON object; it is {value[:80]!r}.")
            for name in found:
                if name.startswith("$"):
                    raise InvalidOption(
                        "Column 'meta' must not have names that begin with '$': they are reserved for what the queues"
                        f" note; there is {name[:80]!r}."
                    )
        return _plain("meta", value)


def _json(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        raise InvalidOption("A binary column cannot be part of a job's data: name it body, or encode it (base64).")
    kind = type(value).__name__
    raise InvalidOption(f"A {kind} cannot be part of a job's data; give a column 'data' with JSON text.")


def _plain(name: str, value: str) -> str:
    if "\x00" in value:
        raise InvalidOption(f"Column {name!r} holds a NUL character, which PostgreSQL does not store.")
    if name in _PAYLOAD and "\\u0000" in value and "\\u0000" in value.replace("\\\\", ""):
        told = f"Column {name!r} must not contain the character U+0000: PostgreSQL cannot store it in jsonb."
        raise InvalidOption(told)
    return value.translate(_ESCAPES)


def _short(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidOption(f"Column {name!r} holds a null.")
    size = len(value) if value.isascii() else len(value.encode())
    if not 0 < size <= SHORT[name]:
        raise InvalidOption(f"Column {name!r} must be 1 to {SHORT[name]} bytes; it has {size}.")
    return _plain(name, value)


def _channel(value: str) -> str:
    if " " in value:  # several callers' channels stand on the job with a space between
        raise InvalidOption(f"Column 'reply_to' must be the name of a channel without spaces; it is {value[:80]!r}.")
    return _short("reply_to", value)


def _data_text(value: str) -> str:
    if value.startswith(_REFERENCE):
        raise InvalidOption(
            "Column 'data' holds a reference to a large payload, which Spark does not read: retry or redrive the jobs."
        )
    return _plain("data", value)


def _bounded(name: str, value: int) -> str:
    low, high = BOUNDS[name]
    if not low <= value <= high:
        raise InvalidOption(f"Column {name!r} must be an integer from {low} to {high}; it is {value}.")
    return str(value)


def _time(value: datetime) -> str:
    if value.year > MAX_YEAR:
        raise InvalidOption(f"Column 'run_at' must not be after the year {MAX_YEAR}; it is {value}.")
    return value.isoformat()


class WriteBroken(LeaseQueueError):
    """Parts that the tasks wrote are not there any more; nothing was enqueued, write again."""


@dataclass
class StagedPart(WriterCommitMessage):
    """The part that one task staged."""

    part: str
    rows: int
    query: str | None


@dataclass
class RefusedRow(WriterCommitMessage):
    """The answer of a task that a row was refused: trying again would give the same."""

    text: str
    query: str | None


class Sink:
    """Base of both writers; ``write`` runs in the tasks, the rest on the driver."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            told = 'The leasequeue sink only adds jobs: use mode("append") (purge a queue with the engine).'
            raise InvalidOption(told)
        self.names = list(schema.fieldNames())
        for field in schema.fields:
            given = field.dataType.simpleString()
            if field.name in SPECIAL and given not in SPECIAL[field.name]:
                wanted = " or ".join(sorted(SPECIAL[field.name]))
                raise InvalidOption(f"Column {field.name!r} must be {wanted}; it is {given}.")
        self.fields = [name for name in self.names if name not in SPECIAL]
        if self.fields and "data" in self.names:
            told = f"With a column 'data' the columns {', '.join(self.fields)} would be lost"
            raise InvalidOption(f"{told}: drop them, or put them into data (to_json(struct(...))).")
        self.queue = options.text("queue")
        if self.queue is not None and not 0 < len(self.queue.encode()) <= SHORT["queue"]:
            raise InvalidOption("Option 'queue' must be 1 to 255 bytes.")
        self.project = options.text("project", "") or ""
        self.origin = options.text("origin", "spark") or "spark"
        if len(self.origin.encode()) > 128:
            raise InvalidOption("Option 'origin' must be at most 128 bytes.")
        self.write_id = options.text("writeId")
        if self.write_id is not None and not 0 < len(self.write_id) <= 200:
            raise InvalidOption("Option 'writeId' must be 1 to 200 characters.")
        self.visible = options.choice("visible", "all", ("all", "parts"))
        if self.visible == "parts" and "key" not in self.names:
            raise InvalidOption("visible = parts needs a column 'key': only keys keep a broken write exact.")
        self.replay = options.choice("replay", "none", ("none", "jobs", "results"))
        if self.replay != "none" and "source_seq" not in self.names:
            raise InvalidOption("replay needs a column 'source_seq': the seq of the dead letter.")
        if self.replay != "none" and self.visible != "all":
            raise InvalidOption("replay takes the dead letters out in one transaction: it needs visible = all.")
        if self.queue is None and "queue" not in self.names and self.replay == "none":
            raise InvalidOption("Name the queue: option 'queue', or a column 'queue'.")
        usual = _usual_payload_bytes()
        self.largest = options.number("maxPayloadBytes", usual, 1, MOST_PAYLOAD_BYTES) or usual
        self.database = resolve(options.connection())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPart | RefusedRow:
        """Copy rows into the stage table under a fresh part id."""
        part = str(uuid.uuid4())
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        rows = Rows(self.names, self.queue or "", self.largest, replay=self.replay != "none")
        try:
            with self.database.connect(read_only=False, autocommit=False) as connection:
                with connection.cursor() as cursor, cursor.copy(statement("lake/stage_copy")) as copy:
                    for text in rows.lines(part, iterator):
                        copy.write(text)
                connection.commit()
        except InvalidOption as error:
            refused = str(error)
        except psycopg.DataError as error:
            refused = str(rows.database_refused(error))
        else:
            return StagedPart(part, rows.count, query)
        for _ in iterator:
            pass  # Spark waits until all of them are taken
        return RefusedRow(refused, query)

    def move(self, write_id: str, batch: int, messages: Sequence[WriterCommitMessage | None]) -> int:
        """Have the reported parts enqueued, once. Returns how many jobs were added."""
        for message in messages:
            if isinstance(message, RefusedRow):
                raise InvalidOption(f"{message.text} Nothing was enqueued.")
        names, staged = _staged(messages)
        with self.database.connect(read_only=False) as connection:
            # Parts that were not reported within a day belong to tasks that died.
            fetch(connection, "lake/stage_sweep")
            move = self._move_chunks if self.visible == "parts" else self._move_once
            added = move(connection, names, {"write_id": write_id, "batch": batch, "staged": staged})
            fetch(connection, "lake/stage_drop", parts=names)
            return added

    def _move_once(self, connection: psycopg.Connection[Any], names: list[str], write: dict[str, Any]) -> int:
        with connection.transaction():
            if not fetch(connection, "lake/write_take", **write):
                return 0  # committed before
            low, high = self._range(connection, names, write["staged"])
            executor = _executor(connection)
            from ..engine.jobs.staged import lock_replayed, remove_replayed

            taken = []
            if self.replay != "none":
                results = self.replay == "results"
                taken = executor.run(lock_replayed(names, low, high, results=results, project=self.project))
            self._check_queues(connection, names)
            added = self._enqueue(connection, names, low, high)
            executor.run(remove_replayed(taken))
            fetch(connection, "lake/write_done", **write, enqueued=added)
        return added

    def _move_chunks(self, connection: psycopg.Connection[Any], names: list[str], write: dict[str, Any]) -> int:
        """Each chunk is a transaction; keys keep it exact when it is done again from the start."""
        if fetch(connection, "lake/write_known", **write)[0][0]:
            return 0
        low, high = self._range(connection, names, write["staged"])
        self._check_queues(connection, names)
        added = 0
        for start in range(low, high, CHUNK):
            with connection.transaction():
                added += self._enqueue(connection, names, start, min(start + CHUNK, high))
        with connection.transaction():
            # Rows that went meanwhile were perhaps not moved. Those that were are kept apart by their keys next time.
            self._range(connection, names, write["staged"])
            fetch(connection, "lake/write_take", **write)
            fetch(connection, "lake/write_done", **write, enqueued=added)
        return added

    def _range(self, connection: psycopg.Connection[Any], names: list[str], staged: int) -> tuple[int, int]:
        """Return the numbers between which the parts stand in the stage (the lower exclusive)."""
        found, low, high = fetch(connection, "lake/stage_count", parts=names)[0]
        if found != staged:
            raise WriteBroken(f"Of {staged} staged jobs {found} are left: the server crashed since. Write again.")
        return (low or 1) - 1, high or 0

    def _enqueue(self, connection: psycopg.Connection[Any], names: list[str], low: int, high: int) -> int:
        executor = _executor(connection)
        from ..engine.jobs.staged import enqueue_staged

        def added(start: int) -> int:
            end = min(start + SIZE, high)
            return executor.run(enqueue_staged(names, start, end, project=self.project, origin=self.origin))

        return sum(map(added, range(low, high, SIZE)))

    def _check_queues(self, connection: psycopg.Connection[Any], names: list[str]) -> None:
        missing = [row[0] for row in fetch(connection, "lake/stage_missing", parts=names, project=self.project)]
        if missing:
            raise QueueNotFound(missing[0], self.project)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803  (Spark's name)
        """Forget what was staged."""
        names, _ = _staged(messages)
        with suppress(psycopg.Error), self.database.connect(read_only=False) as connection:
            fetch(connection, "lake/stage_drop", parts=names)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> tuple[list[str], int]:
    """Return the names of the parts that were staged, and their rows in all."""
    parts = [message for message in messages if isinstance(message, StagedPart)]
    return [part.part for part in parts], sum(part.rows for part in parts)


def _executor(connection: psycopg.Connection[Any]) -> ConnectionExecutor:
    """Return the engine, with the host's settings where they are, else the defaults (a Spark driver may have none)."""
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured

    from .. import conf

    try:
        _ = conf.settings.MAX_ENQUEUE
    except (ImportError, ImproperlyConfigured):
        if settings.configured:
            raise
        settings.configure()
    from ..engine.runner import ConnectionExecutor

    return ConnectionExecutor(connection)


def _usual_payload_bytes() -> int:
    """Return what the host's settings allow a payload, the default where there are none."""
    with suppress(ImportError):
        from django.core.exceptions import ImproperlyConfigured

        from .. import conf

        with suppress(ImproperlyConfigured):
            return conf.settings.MAX_PAYLOAD_BYTES
    return MAX_PAYLOAD_BYTES


class BatchSink(Sink, DataSourceArrowWriter):
    """One DataFrame, one write."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self.write_id = self.write_id or f"batch-{uuid.uuid4()}"

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the jobs visible."""
        self.move(self.write_id or "", -1, messages)


class StreamSink(Sink, DataSourceStreamArrowWriter):
    """A streaming query: each batch is one write under the query's id, so a replayed batch adds nothing."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Make the batch's jobs visible."""
        queries = {told.query for told in messages if isinstance(told, StagedPart | RefusedRow) and told.query}
        write_id = self.write_id or (f"stream-{queries.pop()}" if queries else None)
        if write_id is None:
            if any(isinstance(told, RefusedRow) or (isinstance(told, StagedPart) and told.rows) for told in messages):
                raise InvalidOption("Spark does not tell the id of this query: name the write with the option writeId.")
            return
        self.move(write_id, batchId, messages)

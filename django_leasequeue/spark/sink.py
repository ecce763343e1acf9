"""``df.write.format("leasequeue")`` and its streaming form: bulk enqueue from DataFrames, exactly once.

Each task copies its rows into a stage table under a fresh part id; the commit on the driver has the engine enqueue
exactly the parts that Spark reports, in one transaction that first takes the write's name. So a failed or repeated task
leaves a part that nobody enqueues, and a repeated write or a replayed batch finds its name taken and adds nothing.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..exceptions import InvalidOption, LeaseQueueError, PayloadTooLarge, QueueNotFound
from ..sql import statement
from .database import resolve
from .options import Options

#: Columns with a meaning of their own -> the Spark types that they may have. All others become the job's data.
SPECIAL = {
    "queue": {"string"},
    "key": {"string"},
    "name": {"string"},
    "tag": {"string"},
    "priority": {"int", "smallint", "tinyint", "bigint"},
    "data": {"string"},
    "body": {"binary"},
    "meta": {"string"},
    "run_at": {"timestamp"},
    "ttl_ms": {"bigint", "int"},
    "result_ttl_ms": {"bigint", "int"},
    "max_deliveries": {"int"},
    "reply_to": {"string"},
    "source_seq": {"bigint"},
}
_COPIED = tuple(SPECIAL)
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NULL = "\\N"
#: JSON text that begins so is the engine's reference to a large payload; no other has a space in front.
_REFERENCE = ' {"$large":'
#: Bytes of key, tag and name (engine/limits.py); of one payload unless maxPayloadBytes says otherwise, and at most.
_SHORT = {"key": 1_024, "tag": 256, "name": 1_024, "queue": 255, "reply_to": 255}
MAX_PAYLOAD_BYTES = 1_048_576
MOST_PAYLOAD_BYTES = 256 * 1_048_576
#: Rows of the stage that one statement takes, and one transaction with visible = parts.
SIZE, CHUNK = 5_000, 50_000
#: Dead letters that one statement takes out.
REPLAYED = 1_000


class WriteBroken(LeaseQueueError):
    """Parts that the tasks wrote are not there any more; nothing was enqueued, write again."""


class Part(WriterCommitMessage):
    """The part that one task staged."""

    def __init__(self, part: str, rows: int, query: str | None) -> None:
        self.part = part
        self.rows = rows
        self.query = query


def _json(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        raise InvalidOption("A binary column cannot be part of a job's data: name it body, or encode it (base64).")
    raise InvalidOption(
        f"A {type(value).__name__} cannot be part of a job's data; give a column 'data' with JSON text."
    )


class Sink:
    """Base of both writers; the part before the commit runs in the tasks."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidOption(
                'The leasequeue sink only adds jobs: use mode("append") (purge a queue with the engine).'
            )
        self.names = list(schema.fieldNames())
        for field in schema.fields:
            given = field.dataType.simpleString()
            if field.name in SPECIAL and given not in SPECIAL[field.name]:
                wanted = " or ".join(sorted(SPECIAL[field.name]))
                raise InvalidOption(f"Column {field.name!r} must be {wanted}; it is {given}.")
        self.fields = [name for name in self.names if name not in SPECIAL]
        if self.fields and "data" in self.names:
            raise InvalidOption(
                f"With a column 'data' the columns {', '.join(self.fields)} would be lost: drop them, or put them"
                " into data (to_json(struct(...)))."
            )
        self.queue = options.text("queue")
        if self.queue is None and "queue" not in self.names:
            raise InvalidOption("Name the queue: option 'queue', or a column 'queue'.")
        self.project = options.text("project", "") or ""
        self.origin = options.text("origin", "spark")
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
        self.largest = options.number("maxPayloadBytes", MAX_PAYLOAD_BYTES, 1, MOST_PAYLOAD_BYTES) or MAX_PAYLOAD_BYTES
        self.database = resolve(options.connection())

    # In the tasks.

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Part:
        """Copy rows into the stage table under a fresh part id."""
        part = str(uuid.uuid4())
        rows = 0
        with self.database.connect(read_only=False, autocommit=False) as connection:
            with connection.cursor() as cursor, cursor.copy(statement("lake/stage_copy")) as copy:
                for batch in batches:
                    rows += batch.num_rows
                    for text in self._lines(part, batch):
                        copy.write(text)
            connection.commit()
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        return Part(part, rows, query)

    def _lines(self, part: str, batch: pa.RecordBatch) -> Iterator[str]:
        columns: list[Sequence[str]] = []
        for name in _COPIED:
            if name == "data" and self.fields:
                columns.append(self._datas(batch))
            elif name == "queue" and "queue" not in self.names:
                columns.append([_text("queue", self.queue or "", self.largest)] * batch.num_rows)
            elif name in self.names:
                values = batch.column(batch.schema.get_field_index(name)).to_pylist()
                columns.append([_cell(name, value, self.largest) for value in values])
            else:
                columns.append([_NULL] * batch.num_rows)
        buffer = io.StringIO()
        for row in zip(*columns, strict=True):
            buffer.write(f"{part}\t")
            buffer.write("\t".join(row))
            buffer.write("\n")
            if buffer.tell() > 1_000_000:
                yield buffer.getvalue()
                buffer = io.StringIO()
        yield buffer.getvalue()

    def _datas(self, batch: pa.RecordBatch) -> list[str]:
        rows = batch.select(self.fields).to_pylist()
        encode = json.JSONEncoder(default=_json, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
        return [_text("data", encode(row), self.largest) for row in rows]

    # On the driver.

    def move(self, write_id: str, batch: int, messages: Sequence[WriterCommitMessage | None]) -> int:
        """Have the reported parts enqueued, once. Returns how many jobs were added.

        Raises:
            WriteBroken: a part is gone (the server crashed, or the janitor came): nothing was added.
            QueueNotFound: a queue is missing.
            QueueFull: a queue is at its cap and rejects.
        """
        parts = [message for message in messages if isinstance(message, Part)]
        names = [part.part for part in parts]
        staged = sum(part.rows for part in parts)
        with self.database.connect(read_only=False) as connection:
            self._janitor(connection)
            move = self._move_chunks if self.visible == "parts" else self._move_once
            added = move(connection, names, write_id, batch, staged)
            _run(connection, "lake/stage_drop", parts=names)
            return added

    def _move_once(
        self, connection: psycopg.Connection[Any], names: list[str], write_id: str, batch: int, staged: int
    ) -> int:
        with connection.transaction():
            if not _run(connection, "lake/write_take", write_id=write_id, batch=batch, staged=staged):
                return 0  # committed before
            low, high = self._range(connection, names, staged)
            for start in range(low, high if self.replay != "none" else low, REPLAYED):
                place = {"parts": names, "low": start, "high": min(start + REPLAYED, high), "project": self.project}
                _run(connection, f"lake/replay_{self.replay}", **place)
            added = self._enqueue(connection, names, low, high)
            _run(connection, "lake/write_done", write_id=write_id, batch=batch, enqueued=added)
        return added

    def _move_chunks(
        self, connection: psycopg.Connection[Any], names: list[str], write_id: str, batch: int, staged: int
    ) -> int:
        """Each chunk is a transaction; keys keep it exact when it is done again from the start."""
        if _run(connection, "lake/write_known", write_id=write_id, batch=batch)[0][0]:
            return 0
        low, high = self._range(connection, names, staged)
        added = 0
        for start in range(low, high, CHUNK):
            with connection.transaction():
                added += self._enqueue(connection, names, start, min(start + CHUNK, high))
        with connection.transaction():
            _run(connection, "lake/write_take", write_id=write_id, batch=batch, staged=staged)
            _run(connection, "lake/write_done", write_id=write_id, batch=batch, enqueued=added)
        return added

    def _range(self, connection: psycopg.Connection[Any], names: list[str], staged: int) -> tuple[int, int]:
        """Return the numbers between which the parts stand in the stage (the lower exclusive)."""
        found, low, high = _run(connection, "lake/stage_count", parts=names)[0]
        if found != staged:
            raise WriteBroken(f"Of {staged} staged jobs {found} are left: the server crashed since. Write again.")
        self._check_queues(connection, names)
        return (low or 1) - 1, high or 0

    def _enqueue(self, connection: psycopg.Connection[Any], names: list[str], low: int, high: int) -> int:
        _set_up()
        from ..engine.jobs.staged import enqueue_staged
        from ..engine.runner import ConnectionExecutor

        executor = ConnectionExecutor(connection)
        return sum(
            executor.run(
                enqueue_staged(names, start, min(start + SIZE, high), project=self.project, origin=self.origin)
            )
            for start in range(low, high, SIZE)
        )

    def _check_queues(self, connection: psycopg.Connection[Any], names: list[str]) -> None:
        missing = [row[0] for row in _run(connection, "lake/stage_missing", parts=names, project=self.project)]
        if missing:
            raise QueueNotFound(missing[0], self.project)

    def drop(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Forget what was staged."""
        names = [message.part for message in messages if isinstance(message, Part)]
        with suppress(psycopg.Error), self.database.connect(read_only=False) as connection:
            _run(connection, "lake/stage_drop", parts=names)

    def _janitor(self, connection: psycopg.Connection[Any]) -> None:
        """Parts that nobody reported within a day belong to tasks that died."""
        _run(connection, "lake/stage_sweep")


def _set_up() -> None:
    """Give the engine its settings: the host's where they are, else the defaults (a Spark driver may have none)."""
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured

    from .. import conf

    try:
        _ = conf.settings.MAX_ENQUEUE
    except (ImportError, ImproperlyConfigured):
        if settings.configured:
            raise
        settings.configure()


class BatchSink(Sink, DataSourceArrowWriter):
    """One DataFrame, one write."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self.write_id = self.write_id or f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Part:
        """Stage one task's rows."""
        return self.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the jobs visible."""
        self.move(self.write_id or "", -1, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget the rows."""
        self.drop(messages)


class StreamSink(Sink, DataSourceStreamArrowWriter):
    """A streaming query: each batch is one write under the query's id, so a replayed batch adds nothing."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Part:
        """Stage one task's rows."""
        return self.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Make the batch's jobs visible."""
        queries = {message.query for message in messages if isinstance(message, Part) and message.query}
        write_id = self.write_id or (f"stream-{queries.pop()}" if queries else None)
        if write_id is None:
            if not any(isinstance(message, Part) and message.rows for message in messages):
                return
            raise InvalidOption("Spark does not tell the id of this query: name the write with the option writeId.")
        self.move(write_id, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Forget the batch's rows."""
        self.drop(messages)


def _run(connection: psycopg.Connection[Any], name: str, **parameters: Any) -> list[tuple[Any, ...]]:
    cursor = psycopg.ClientCursor(connection).execute(statement(name), parameters)
    return cursor.fetchall() if cursor.description else []


def _text(name: str, value: str, largest: int) -> str:
    if "\x00" in value:
        raise InvalidOption(f"Column {name!r} holds a NUL character, which PostgreSQL does not store.")
    if name in _SHORT and (not value or len(value) * 4 > _SHORT[name]):
        size = len(value.encode())
        if not 0 < size <= _SHORT[name]:
            raise InvalidOption(f"Column {name!r} must be 1 to {_SHORT[name]} bytes; one value has {size}.")
    if name == "data" and value.startswith(_REFERENCE):
        raise InvalidOption(
            "Column 'data' holds a reference to a large payload, which Spark does not read: retry or redrive the jobs."
        )
    if name in {"data", "meta"} and len(value) * 4 > largest and len(value.encode()) > largest:
        raise _too_large(name, largest)
    return value.translate(_ESCAPES)


def _too_large(name: str, largest: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"Column {name!r} holds a value of more than {largest} bytes (option maxPayloadBytes).")


def _cell(name: str, value: Any, largest: int) -> str:
    if value is None:
        if name == "queue":
            raise InvalidOption("Column 'queue' holds a null.")
        return _NULL
    if isinstance(value, str):
        return _text(name, value, largest)
    if isinstance(value, bytes | bytearray):
        if len(value) > largest:
            raise _too_large(name, largest)
        return f"\\\\x{value.hex()}"
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)

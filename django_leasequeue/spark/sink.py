"""``df.write.format("leasequeue")`` and its streaming form: bulk enqueue from DataFrames, exactly once.

Each task copies its rows into a stage table under a fresh part id; the commit on the driver has the engine enqueue
exactly the parts that Spark reports, in one transaction that first takes the write's name. So a failed or repeated task
leaves a part that is not enqueued, and a repeated write or a replayed batch finds its name taken and adds nothing. A
row that cannot be a job fails the write at its commit: a task that fails is only tried again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..exceptions import InvalidOption, LeaseQueueError, QueueNotFound
from ..sql import statement
from .database import Options, fetch, resolve
from .staging import SPECIAL, Rows

#: Bytes of one payload unless the settings or maxPayloadBytes say otherwise, and at most.
MAX_PAYLOAD_BYTES = 1_048_576
MOST_PAYLOAD_BYTES = 256 * 1_048_576
#: Rows of the stage that one statement takes, and one transaction with visible = parts.
SIZE, CHUNK = 5_000, 50_000


class WriteBroken(LeaseQueueError):
    """Parts that the tasks wrote are not there any more; nothing was enqueued, write again."""


class StagedPart(WriterCommitMessage):
    """The part that one task staged."""

    def __init__(self, part: str, rows: int, query: str | None) -> None:
        self.part = part
        self.rows = rows
        self.query = query


class RefusedRow(WriterCommitMessage):
    """The answer of a task that a row was refused: trying again would give the same."""

    def __init__(self, text: str, query: str | None) -> None:
        self.text = text
        self.query = query


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
        if self.queue is not None and not 0 < len(self.queue.encode()) <= 255:
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

    # In the tasks.

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

    # On the driver.

    def move(self, write_id: str, batch: int, messages: Sequence[WriterCommitMessage | None]) -> int:
        """Have the reported parts enqueued, once. Returns how many jobs were added."""
        for message in messages:
            if isinstance(message, RefusedRow):
                raise InvalidOption(f"{message.text} Nothing was enqueued.")
        parts = [message for message in messages if isinstance(message, StagedPart)]
        names = [part.part for part in parts]
        staged = sum(part.rows for part in parts)
        with self.database.connect(read_only=False) as connection:
            # Parts that were not reported within a day belong to tasks that died.
            fetch(connection, "lake/stage_sweep")
            move = self._move_chunks if self.visible == "parts" else self._move_once
            added = move(connection, names, write_id, batch, staged)
            fetch(connection, "lake/stage_drop", parts=names)
            return added

    def _move_once(
        self, connection: psycopg.Connection[Any], names: list[str], write_id: str, batch: int, staged: int
    ) -> int:
        with connection.transaction():
            if not fetch(connection, "lake/write_take", write_id=write_id, batch=batch, staged=staged):
                return 0  # committed before
            low, high = self._range(connection, names, staged)
            _set_up()
            from ..engine.jobs.staged import lock_replayed, remove_replayed
            from ..engine.runner import ConnectionExecutor

            executor = ConnectionExecutor(connection)
            taken = []
            if self.replay != "none":
                results = self.replay == "results"
                taken = executor.run(lock_replayed(names, low, high, results=results, project=self.project))
            self._check_queues(connection, names)
            added = self._enqueue(connection, names, low, high)
            executor.run(remove_replayed(taken))
            fetch(connection, "lake/write_done", write_id=write_id, batch=batch, enqueued=added)
        return added

    def _move_chunks(
        self, connection: psycopg.Connection[Any], names: list[str], write_id: str, batch: int, staged: int
    ) -> int:
        """Each chunk is a transaction; keys keep it exact when it is done again from the start."""
        if fetch(connection, "lake/write_known", write_id=write_id, batch=batch)[0][0]:
            return 0
        low, high = self._range(connection, names, staged)
        self._check_queues(connection, names)
        added = 0
        for start in range(low, high, CHUNK):
            with connection.transaction():
                added += self._enqueue(connection, names, start, min(start + CHUNK, high))
        with connection.transaction():
            # Rows that went meanwhile were perhaps not moved. Those that were are kept apart by their keys next time.
            self._range(connection, names, staged)
            fetch(connection, "lake/write_take", write_id=write_id, batch=batch, staged=staged)
            fetch(connection, "lake/write_done", write_id=write_id, batch=batch, enqueued=added)
        return added

    def _range(self, connection: psycopg.Connection[Any], names: list[str], staged: int) -> tuple[int, int]:
        """Return the numbers between which the parts stand in the stage (the lower exclusive)."""
        found, low, high = fetch(connection, "lake/stage_count", parts=names)[0]
        if found != staged:
            raise WriteBroken(f"Of {staged} staged jobs {found} are left: the server crashed since. Write again.")
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
        missing = [row[0] for row in fetch(connection, "lake/stage_missing", parts=names, project=self.project)]
        if missing:
            raise QueueNotFound(missing[0], self.project)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803  (Spark's name)
        """Forget what was staged."""
        names = [message.part for message in messages if isinstance(message, StagedPart)]
        with suppress(psycopg.Error), self.database.connect(read_only=False) as connection:
            fetch(connection, "lake/stage_drop", parts=names)


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


def _usual_payload_bytes() -> int:
    """Return what the host's settings allow a payload, the default where there are none."""
    try:
        from django.core.exceptions import ImproperlyConfigured

        from .. import conf
    except ImportError:
        return MAX_PAYLOAD_BYTES
    try:
        return conf.settings.MAX_PAYLOAD_BYTES
    except (ImportError, ImproperlyConfigured):
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

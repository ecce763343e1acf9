"""``df.write.format("leasequeue")`` and its streaming form: bulk enqueue from DataFrames, exactly once.

Each task copies its rows into a stage table under a fresh part id; the commit on the driver has the engine enqueue
exactly the parts that Spark reports, in one transaction that first takes the write's name. A failed or repeated task
leaves a part that is not enqueued. A repeated write or a replayed batch finds its name taken and adds nothing. A task
reports a row that cannot be a job, and the commit fails: Spark would only try a failed task again. Tasks import no
Django. ``replay`` puts dead letters back that any query selects.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..exceptions import InvalidOption, LeaseQueueError, QueueNotFound
from ..sql import statement
from .database import Options, fetch, resolve, resolve_of
from .session import said
from .staging import SHORT, SPECIAL, Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..engine.runner import ConnectionExecutor

#: Bytes of one payload unless the settings or maxPayloadBytes say otherwise, and at most.
MAX_PAYLOAD_BYTES = 1_048_576
MOST_PAYLOAD_BYTES = 256 * 1_048_576
#: Rows of the stage that one statement takes, and one transaction with visible = parts.
SIZE, CHUNK = 5_000, 50_000


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
        self.replay = options.choice("replay", "none", ("none", "jobs", "results"))
        replays, lacks = self.replay != "none", set(SPECIAL).difference(self.names)
        for wrong, told in (
            (self.visible == "parts" and "key" in lacks, "visible = parts needs a column 'key': keys keep it exact."),
            (replays and "source_seq" in lacks, "replay needs a column 'source_seq': the seq of the dead letter."),
            (replays and self.visible != "all", "replay is one transaction: it needs visible = all."),
            (not replays and self.queue is None and "queue" in lacks, "Name the queue: option or column 'queue'."),
        ):
            if wrong:
                raise InvalidOption(told)
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
            from ..engine.jobs.enqueue import lock_replayed, remove_replayed

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
        from ..engine.jobs.enqueue import enqueue_staged

        def added(start: int) -> int:
            end = min(start + SIZE, high)
            return executor.run(enqueue_staged(names, start, end, project=self.project, origin=self.origin))

        return sum(map(added, range(low, high, SIZE)))

    def _check_queues(self, connection: psycopg.Connection[Any], names: list[str]) -> None:
        missing = [row[0] for row in fetch(connection, "lake/stage_missing", parts=names, project=self.project)]
        if missing:
            raise QueueNotFound(missing[0], self.project)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803  (Spark's name)
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
    from django.core.exceptions import ImproperlyConfigured

    from .. import conf

    with suppress(ImportError, ImproperlyConfigured):
        return conf.settings.MAX_PAYLOAD_BYTES
    return MAX_PAYLOAD_BYTES


class BatchSink(Sink, DataSourceArrowWriter):
    """One DataFrame, one write."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self.write_id = self.write_id or f"batch-{uuid.uuid4()}"

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.move(self.write_id or "", -1, messages)


class StreamSink(Sink, DataSourceStreamArrowWriter):
    """A streaming query: each batch is one write under the query's id, so a replayed batch adds nothing."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        queries = {told.query for told in messages if isinstance(told, StagedPart | RefusedRow) and told.query}
        write_id = self.write_id or (f"stream-{queries.pop()}" if queries else None)
        if write_id is None:
            if any(isinstance(told, RefusedRow) or (isinstance(told, StagedPart) and told.rows) for told in messages):
                raise InvalidOption("Spark does not tell the id of this query: name the write with the option writeId.")
            return
        self.move(write_id, batchId, messages)


def dead_letters(spark: SparkSession, source: Mapping[str, str], table: str = "jobs") -> DataFrame:
    """Return dead jobs (``jobs``) or jobs that failed for good (``results``), to be selected from."""
    frame = spark.read.format("leasequeue").options(**source, table=table).load()
    return frame.where("state = 'dead' or dead_at is not null" if table == "jobs" else "state = 'failed'")


def replay(
    letters: DataFrame,
    sink: Mapping[str, str],
    *,
    queue: str | None = None,
    rate: float | None = None,
    table: str = "jobs",
    write_id: str | None = None,
) -> int:
    """Put dead letters back.

    The transaction that enqueues a letter takes it out of its dead-letter queue. So running twice replays once, and a
    job that was redriven or cancelled meanwhile stays away. A letter whose key is taken in the target queue stays where
    it is. ``meta`` keeps what the producer wrote and the job's context, and tells where the job came from.

    ``letters`` are a selection from :func:`dead_letters` of the same ``table``, ``sink`` has the options of the
    connection. They go to ``queue``, or each to the queue in which it died, at ``rate`` a second, or all at once.

    Returns how many went back; 0 when ``write_id`` was used before. When the sink refuses a row, or a queue is gone or
    full, nothing is replayed (InvalidOption).
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if missing := [name for name in ("seq", "data") if name not in letters.columns]:
        raise InvalidOption(f"The selection lacks {', '.join(missing)}: keep the columns of the table when you filter.")
    if rate is not None and rate <= 0:
        raise InvalidOption(f"The rate must be positive (jobs a second); it is {rate}.")
    kept = [name for name in ("data", "body", "key", "name", "tag", "meta") if name in letters.columns]
    columns = [f.col("seq").alias("source_seq"), *kept]
    if rate is not None:
        later = ((f.row_number().over(Window.orderBy("seq")) - 1) * 1e6 / rate).cast("bigint")
        columns.append(f.timestamp_micros(f.unix_micros(f.current_timestamp()) + later).alias("run_at"))
    writer = letters.select(*columns).write.format("leasequeue").options(**sink, replay=table)
    if queue is not None:
        writer.option("queue", queue)
    write_id = write_id or f"replay-{uuid.uuid4()}"
    before = _enqueued(sink, write_id)
    try:
        writer.option("writeId", write_id).mode("append").save()
    except PySparkException as error:
        raise InvalidOption(f"Nothing was replayed: {said(error)}") from error
    return 0 if before is not None else _enqueued(sink, write_id) or 0


def _enqueued(sink: Mapping[str, str], write_id: str) -> int | None:
    with resolve_of(sink).connect() as connection:
        found = fetch(connection, "lake/write_enqueued", write_id=write_id)
    return found[0][0] if found else None

"""Bronze: the stream of events into the lake, in rows of up to a thousand jobs, which :func:`by_job` takes apart.

As a Delta table it is exactly once by the table's own log. Spark's file sink, which writes Parquet, skips every batch
whose number the path already has. A new checkpoint counts from 0 again and would lose events silently, so a checkpoint
that did not write these files is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..exceptions import InvalidOption, LeaseQueueError
from . import delta
from .arrow import LINKED, PLACES, UNCLAIMED
from .layout import BATCHES, BRONZE, Lake
from .session import said
from .tables import EVENT_KINDS

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

#: Events of one micro-batch: so long is what a kill makes Spark do again.
BATCH = 1_000_000
#: Seconds from one line of progress to the next.
PROGRESS = 5
#: Rows that agree in these are one row of the log (ids begin anew in a restored database).
_ROW = ["id", "txid", "occurred_at"]
#: The stream counts events under this name: Spark's own figures count rows.
_COUNT = "events"


class PipelineFailed(LeaseQueueError):
    """A step of the pipeline broke off; nothing is half done, run it again."""


def ingest(
    lake: Lake,
    source: Mapping[str, str],
    *,
    consumer: str = "lake",
    batch: int = BATCH,
    accept_loss: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> int:
    """Stream what is new in the lease log into bronze, stop, and return the number of events (see `pipeline.run`).

    A checkpoint that does not belong to the files is an InvalidOption, a stream that breaks off a PipelineFailed.
    """
    import pyspark
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    checkpoint = lake.checkpoint("bronze")
    stream = _belongs(lake, checkpoint)
    options = {**source, "consumer": consumer, "failOnDataLoss": str(not accept_loss).lower(), "batches": "true"}
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 2):
        options["maxRowsPerTrigger"] = str(batch)
    rows = lake.spark.readStream.format("leasequeue").options(**options).schema(BATCHES).load()
    writer = with_days(rows.observe(_COUNT, f.sum(f.size("seqs")).alias(_COUNT))).writeStream
    writer = writer.option("checkpointLocation", checkpoint).queryName("leasequeue-bronze").trigger(availableNow=True)
    if lake.format == "delta":
        # Through Spark Connect it runs in a process of the server: it takes plain values only.
        root = lake.root
        writer = writer.foreachBatch(lambda frame, number: append_batch(frame, number, root, checkpoint))
    else:
        writer = writer.format("parquet").partitionBy("day").option("path", lake.bronze)
    # A stream's files know no options but the session's, as they are when it starts.
    for name, value in delta.PLAIN.items():
        lake.spark.conf.set(name, value)
    try:
        query = writer.start()
    finally:
        for name in delta.PLAIN:
            lake.spark.conf.unset(name)
    if stream is None:
        lake.put_note("bronze", {"stream": lake.stream(checkpoint)})
    try:
        while not query.awaitTermination(PROGRESS):
            tell(f"bronze: {_count(query)} events so far")
    except PySparkException as error:
        raise PipelineFailed(f"Reading the lease log broke off: {said(error)}") from error
    return _count(query)


def _count(query: StreamingQuery) -> int:
    seen = [progress.observedMetrics.get(_COUNT) for progress in query.recentProgress]
    counted = [row[0] for row in seen if row is not None]
    # Through Spark Connect the row is a list of its values. An empty batch has no sum.
    return sum((one[0] if isinstance(one, list) else one) or 0 for one in counted)


def with_days(events: DataFrame) -> DataFrame:
    """Add the day of the event (UTC)."""
    from pyspark.sql import functions as f

    # A date: as text, days took a tenth more of the whole (24.4 against 22.0 CPU seconds for 5 million events).
    return events.withColumn("day", f.col("occurred_at").cast("date"))


def _belongs(lake: Lake, checkpoint: str) -> str | None:
    """Return the id of the stream that wrote the table, None for the first; refuse a checkpoint that is not its own."""
    mine, known = lake.stream(checkpoint), lake.note("bronze").get("stream")
    is_delta = lake.format == "delta"
    log = f"{lake.bronze}/{'_delta_log' if is_delta else '_spark_metadata'}"
    there = (delta.open_or_none(lake.bronze) if is_delta else lake.lines_or_none(log)) is not None
    # A driver that was killed before its first batch leaves the directory, and nothing in it.
    if not there and lake.lines_or_none(f"{checkpoint}/commits"):
        # A new list would begin: readers would see the files of the next batches, and no other.
        raise InvalidOption(
            f"The checkpoint {checkpoint} has batches, but {log}, the list of the files that readers see, is gone."
            " Put the newest copy back. If there is none, move the checkpoint and the lake's files away: the next run"
            " reads all that the database still has."
        )
    if not is_delta and there and mine != (known or mine):
        raise InvalidOption(
            f"The files in {lake.bronze} belong to another checkpoint than {checkpoint}, and Spark would pass over new"
            " events. Bring the two together again, or give the lake another path: there the next run reads all that"
            " the database still has. (A lake of Delta tables goes on with a new checkpoint.)"
        )
    return known if known == mine else None


#: What the detail of a row of linked jobs says: of all of them, and in lists with an element of each.
_LINKS = {
    "workflow": "string", "name": "string", "parents": "array<array<bigint>>", "labels": "array<string>",
    "tolerant": "array<boolean>",
}  # fmt: skip


def by_job(rows: DataFrame) -> DataFrame:
    """Return one row a job."""
    from pyspark.sql import functions as f

    from .metrics.spans import mapped

    # A kind that a newer release writes has no word.
    event = mapped(f.col("kind"), EVENT_KINDS)
    # What is the same of a row's jobs is worked out before they part; a thousand links are not read a thousand times.
    # (As a variant: what from_json is part of runs uncompiled.)
    links = f.struct(*[f.variant_get(f.parse_json("detail"), f"$.{name}", _LINKS[name]).alias(name) for name in _LINKS])
    told = rows.withColumns({"event": event, "links": f.when(f.col("kind") == LINKED, links)})

    def at(column: str) -> Column:
        return f.get(column, f.col("place"))

    once = f.when(~f.col("kind").isin(*UNCLAIMED), 1)
    # The workflow of a job, what it comes after, and what is said of it alone.
    link = f.struct(
        *("links.workflow", "links.name", at("links.parents").alias("parents")),
        f.coalesce(at("links.labels"), f.lit("")).alias("label"),
        f.coalesce(at("links.tolerant"), f.lit(False)).alias("tolerant"),
    )
    each = told.select("*", f.posexplode("seqs").alias("place", "seq")).withColumns(
        {
            "id": f.col("id") * PLACES + f.col("place"),
            "deliveries": f.when(f.col("deliveries").isNotNull(), at("deliveries")).otherwise(once),
            "waited": at("waited"),
            "ran": at("ran"),
            "detail": f.when(f.col("kind") == LINKED, f.to_json(link)).otherwise(f.col("detail")),
        }
    )
    return each.select(*[column.split()[0] for column in BRONZE.split(", ")], "day")


def read_or_none(lake: Lake) -> DataFrame | None:
    """Return the events of bronze, one row a job; None when there are none."""
    rows = lake.read_or_none(lake.bronze)
    return None if rows is None else by_job(rows)


def read(lake: Lake) -> DataFrame:
    """Return the events of bronze, one row a job."""
    return by_job(lake.read(lake.bronze))


def append_batch(frame: DataFrame, number: int, root: str, checkpoint: str) -> None:
    """Commit one batch of the stream, unless the table has it. A new checkpoint's batches are others: its id is new."""
    from deltalake import CommitProperties, Transaction

    lake = Lake(frame.sparkSession, root, "delta")
    stream = lake.stream(checkpoint) or ""
    table = delta.open_or_none(lake.bronze)
    if table is not None:
        committed = table.transaction_version(stream)
        if committed is not None and committed >= number:
            return
        delta.follow_schema(table, frame)
        frame = _without_known(lake, table, frame, checkpoint, first=committed is None)
    told = {"stream": stream, "batch": str(number)}
    properties = CommitProperties(custom_metadata=told, app_transactions=[Transaction(stream, number)])
    files = delta.write_files(frame, lake.bronze, f"data/{stream}/{number}-{secrets.token_hex(4)}")
    # The first batch makes the table, also without rows: a checkpoint with batches has a table.
    if files or table is None:
        delta.commit(lake.bronze, table, frame, files, "append", commit_properties=properties)


def _without_known(lake: Lake, table: DeltaTable, frame: DataFrame, checkpoint: str, *, first: bool) -> DataFrame:
    """Leave out rows that an earlier checkpoint brought into the table."""
    note = f"{checkpoint}/_leasequeue"
    if first and table.file_uris():
        lake.put_note_at(note, {"follows": table.version()})
    if not lake.note_at(note):
        return frame
    known = delta.rows(lake.spark, lake.bronze, table).select(*_ROW)
    return frame.join(known, _ROW, "left_anti").select(*frame.columns)

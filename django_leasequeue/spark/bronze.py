"""Bronze: the stream of events into the lake, and the tie between its checkpoint and the path of its files.

It keeps the rows of the log as they are, each with the events of up to a thousand jobs: fewer and larger rows, which
readers take apart (:mod:`.unpack`). A checkpoint that began with a row a job goes on with that.

Spark's file sink passes over every batch whose number its path already has: a new checkpoint, which counts from 0
again, would lose events there without a word. So the checkpoint and its path bear the same mark, and a new checkpoint
writes to a path of its own, the next part of the same table. What two parts both have counts once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..exceptions import InvalidOption, LeaseQueueError
from . import delta
from .errors import said
from .layout import BATCHES, BRONZE, PLAIN, Lake
from .unpack import by_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

#: Events of one micro-batch: so long is what a kill makes Spark do again.
BATCH = 1_000_000
#: Seconds from one line of progress to the next.
PROGRESS = 5
_MARK = "_leasequeue"
#: The stream counts events under this name: Spark's own figures count rows.
_COUNT = "events"


class PipelineFailed(LeaseQueueError):
    """A step of the pipeline broke off; nothing is half done, run it again."""


class Tied(NamedTuple):
    """The path that a checkpoint writes to, and whether its rows are the log's own (else a row a job)."""

    path: str
    batches: bool


class Events(NamedTuple):
    """The events of bronze: all, those of the newest part, and that part's number from 1, or ``delta``."""

    all: DataFrame
    newest: DataFrame
    part: int | str


def ingest(
    lake: Lake,
    source: Mapping[str, str],
    *,
    consumer: str = "lake",
    batch: int = BATCH,
    accept_loss: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> int:
    """Stream what is new in the lease log into bronze, and stop.

    Args:
        lake: where to.
        source: options of the source, for example ``{"alias": "default"}``.
        consumer: the name under which retention knows this lake.
        batch: events of a micro-batch.
        accept_loss: go on where retention has dropped events that were not read; the checkpoint notes which.
        tell: called with a line of progress now and then.

    Returns:
        The number of events.

    Raises:
        InvalidOption: the checkpoint does not belong to the files; the message says what to do.
        PipelineFailed: the stream ended with an error.
    """
    import pyspark
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    if lake.format == "delta":
        checkpoint, path, batches = lake.checkpoint("bronze.delta"), None, True
        known, files = delta.open_or_none(lake) is not None, f"{delta.uri(lake)}/_delta_log"
    else:
        checkpoint = lake.checkpoint("bronze")
        path, batches = tie(lake, checkpoint)
        files = f"{path}/_spark_metadata"
        known = lake.lines_or_none(files) is not None
    if not known and lake.lines_or_none(f"{checkpoint}/commits") is not None:
        # A new list would begin: readers would see the files of the next batches, and no other.
        raise InvalidOption(
            f"The checkpoint {checkpoint} has batches, but {files}, the list of the files that readers see, is gone."
            " Put the newest copy back. If there is none, move the checkpoint away: the next run reads all that the"
            " database still has, and events that the lake has twice count once."
        )
    options = {**source, "consumer": consumer, "failOnDataLoss": str(not accept_loss).lower()}
    options["batches"] = str(batches).lower()
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 2):
        options["maxRowsPerTrigger"] = str(batch)
    rows = lake.spark.readStream.format("leasequeue").options(**options).schema(BATCHES if batches else BRONZE).load()
    counted = rows.observe(_COUNT, (f.sum(f.size("seqs")) if batches else f.count("*")).alias(_COUNT))
    writer = with_days(counted).writeStream
    if path is None:
        # Through Spark Connect it runs in a process of the server: it takes plain values only.
        root = lake.root
        writer = writer.foreachBatch(lambda frame, number: delta.append(frame, number, root, checkpoint))
    else:
        writer = writer.format("parquet").partitionBy("day").option("path", path)
    # A stream's files know no options but the session's, as they are when it starts.
    for name, value in PLAIN.items():
        lake.spark.conf.set(name, value)
    try:
        query = (
            writer.option("checkpointLocation", checkpoint)
            .queryName("leasequeue-bronze")
            .trigger(availableNow=True)
            .start()
        )
    finally:
        for name in PLAIN:
            lake.spark.conf.unset(name)
    try:
        while not query.awaitTermination(PROGRESS):
            tell(f"bronze: {_count(query)} events so far")
    except PySparkException as error:
        raise PipelineFailed(f"Reading the lease log broke off: {said(error)}") from error
    return _count(query)


def _count(query: StreamingQuery) -> int:
    """Return how many events the stream has read."""
    seen = [progress.observedMetrics.get(_COUNT) for progress in query.recentProgress]
    counted = [row[0] for row in seen if row is not None]
    # Through Spark Connect the row is a list of its values. An empty batch has no sum.
    return sum((one[0] if isinstance(one, list) else one) or 0 for one in counted)


def with_days(events: DataFrame) -> DataFrame:
    """Add the day of the event (UTC)."""
    from pyspark.sql import functions as f

    # A date: as text, days took a tenth more of the whole (24.4 against 22.0 CPU seconds for 5 million events).
    return events.withColumn("day", f.col("occurred_at").cast("date"))


def tie(lake: Lake, checkpoint: str) -> Tied:
    """Return where a checkpoint writes to: its own path, or for a new checkpoint the next part of the table."""
    mine = lake.note_at(f"{checkpoint}/{_MARK}")
    if mine:
        path = lake.path(*mine["path"])
        if _mark(lake, path) != mine["id"]:
            raise InvalidOption(
                f"The checkpoint {checkpoint} belongs to the files in {path}, and those are not there, or belong to"
                " another checkpoint. Bring the two together again; or move the checkpoint away: the next run reads all"
                " that the database still has into a path of its own. Events that are there twice count once."
            )
        return Tied(path, mine.get("batches", False))
    identity = secrets.token_hex(8)
    number = 1
    # If not, both were made before there were marks.
    new = lake.lines_or_none(f"{checkpoint}/metadata") is None or _mark(lake, lake.bronze) is not None
    while new and _taken(lake, number):
        number += 1
    path = lake.path(*_path(number))
    # The files first: a part that no checkpoint knows stays empty, and the next run takes the one behind it.
    lake.put_note_at(f"{path}/{_MARK}", {"id": identity})
    lake.put_note_at(f"{checkpoint}/{_MARK}", {"id": identity, "path": _path(number), "batches": new})
    return Tied(path, new)


def read_or_none(lake: Lake) -> Events | None:
    """Return the events of all parts of bronze, one row a job; None when there are none."""
    found = {1: _read_or_none(lake, 1)}
    number = 2
    while _mark(lake, lake.path(*_path(number))) is not None:
        found[number] = _read_or_none(lake, number)
        number += 1
    # What is read last is newest: a lake that turned to Delta goes on there.
    parts: dict[int | str, DataFrame] = {number: frame for number, frame in found.items() if frame is not None}
    if (table := delta.read_or_none(lake)) is not None:
        parts["delta"] = table
    if not parts:
        return None
    every, *more = parts.values()
    for frame in more:
        every = every.unionByName(frame)
    last = list(parts)[-1]
    return Events(every, parts[last], last)


def read(lake: Lake) -> DataFrame:
    """Return the events of all parts of bronze, one row a job; those of several parts may come twice."""
    found = read_or_none(lake)
    return lake.read(lake.bronze) if found is None else found.all


def _read_or_none(lake: Lake, number: int) -> DataFrame | None:
    frame = lake.read_or_none(lake.path(*_path(number)))
    return by_job(frame) if frame is not None and "seqs" in frame.columns else frame


def _path(number: int) -> list[str]:
    return ["bronze", "events" if number == 1 else f"events.{number}"]


def _mark(lake: Lake, path: str) -> str | None:
    return lake.note_at(f"{path}/{_MARK}").get("id")


def _taken(lake: Lake, number: int) -> bool:
    """Whether a checkpoint writes to this part, or did."""
    path = lake.path(*_path(number))
    return _mark(lake, path) is not None or lake.lines_or_none(f"{path}/_spark_metadata") is not None

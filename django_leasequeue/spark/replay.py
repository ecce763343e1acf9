"""Dead letters that any query selects, back into a queue: with provenance, at a rate, once."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..exceptions import InvalidOption
from .database import fetch, resolve_of
from .session import said

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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

"""From the lease log to figures: bronze (a stream), silver (attempts and jobs), gold (one table a question).

Every step may be killed and run again: bronze is exactly once by its checkpoint, silver rewrites the days that new
events touch from all events of those days, gold is written anew from silver. So late and repeated events change
nothing, and a second run gives the same tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from ..exceptions import LeaseQueueError
from . import metrics
from .layout import BRONZE, PLAIN, Lake
from .metrics.spans import begun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Events of one micro-batch: so long is what a kill makes Spark do again.
BATCH = 1_000_000


class PipelineFailed(LeaseQueueError):
    """A step of the pipeline broke off; nothing is half done, run it again."""


class Ran(NamedTuple):
    """The outcome of a run: events read, days of silver rewritten, gold tables written, seconds by step."""

    events: int
    days: int
    tables: list[str]
    seconds: dict[str, float]


def run(
    lake: Lake,
    source: Mapping[str, str],
    *,
    consumer: str = "lake",
    batch: int = BATCH,
    wanted_wait: float = 5.0,
    tell: Callable[[str], None] = lambda line: None,
) -> Ran:
    """Run the whole pipeline once, over what is new.

    Args:
        lake: where to.
        source: options of the source (see docs/reference/lake.md), for example ``{"alias": "default"}``.
        consumer: the name under which retention knows this lake.
        batch: events of a micro-batch.
        wanted_wait: 99th percentile of waiting (seconds) that the capacity table plans for.
        tell: called with a line for each step.

    Raises:
        PipelineFailed: the stream ended with an error.
    """
    seconds: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        begin = time.monotonic()
        answer = step()
        seconds[name] = time.monotonic() - begin
        tell(f"{name}: {answer if isinstance(answer, int) else len(answer)} in {seconds[name]:.1f} s")
        return answer

    events = timed("bronze (events)", lambda: ingest(lake, source, consumer=consumer, batch=batch))
    days = timed("silver (days)", lambda: refine(lake))
    missing = lake.read_or_none(lake.gold("throughput")) is None
    tables = timed("gold (tables)", lambda: figure(lake, wanted_wait) if days or missing else [])
    return Ran(events, days, tables, seconds)


def ingest(lake: Lake, source: Mapping[str, str], *, consumer: str = "lake", batch: int = BATCH) -> int:
    """Stream what is new in the lease log into bronze, and stop. Returns the number of events."""
    import pyspark
    from pyspark.errors import PySparkException

    options = {**source, "consumer": consumer}
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 2):
        options["maxRowsPerTrigger"] = str(batch)
    events = lake.spark.readStream.format("leasequeue").options(**options).schema(BRONZE).load()
    writer = with_days(events).writeStream.format("parquet").partitionBy("day").option("path", lake.bronze)
    # A stream's files know no options but the session's, as they are when it starts.
    for name, value in PLAIN.items():
        lake.spark.conf.set(name, value)
    try:
        query = (
            writer.option("checkpointLocation", lake.checkpoint("bronze"))
            .queryName("leasequeue-bronze")
            .trigger(availableNow=True)
            .start()
        )
    finally:
        for name in PLAIN:
            lake.spark.conf.unset(name)
    try:
        query.awaitTermination()
    except PySparkException as error:
        raise PipelineFailed(f"Reading the lease log broke off: {error}") from error
    # As an attribute: Spark Connect gives the figure by source only, and this adds them up.
    return sum(progress.numInputRows for progress in query.recentProgress)


def with_days(events: DataFrame) -> DataFrame:
    """Add the day of the event (UTC)."""
    from pyspark.sql import functions as f

    # A date: as text, days took a tenth more of the whole (24.4 against 22.0 CPU seconds for 5 million events).
    return events.withColumn("day", f.col("occurred_at").cast("date"))


def refine(lake: Lake) -> int:
    """Rewrite the days of silver that events new in bronze touch. Returns how many."""
    from pyspark.sql import functions as f

    bronze, before = lake.read_or_none(lake.bronze), lake.read_or_none(lake.silver("jobs"))
    if bronze is None:
        return 0
    done = lake.note("silver") if before is not None else {}
    txid, number = done.get("txid", 0), done.get("id", 0)
    new = bronze.where((f.col("txid") > txid) | ((f.col("txid") == txid) & (f.col("id") > number)))
    newest = new.agg(f.max(f.struct("txid", "id")).alias("last"), f.min("seq").alias("lowest")).first()
    if newest is None or newest.lowest is None:
        return 0
    events = (
        bronze if before is None else _of_touched_days(bronze, new, before.where(f.col("seq") >= newest.lowest), before)
    )
    # One pass gives both tables.
    folded = metrics.fold(named(events)).persist()
    try:
        for name, frame in (("attempts", metrics.attempts_of(folded)), ("jobs", metrics.jobs_of(folded))):
            rows = frame.withColumn("job_day", f.col("enqueued_at").cast("date"))
            # Only the days that are written are replaced.
            writer = rows.write.partitionBy("job_day").mode("overwrite").options(**PLAIN)
            writer.option("partitionOverwriteMode", "dynamic").parquet(lake.silver(name))
        days = folded.select(f.col("enqueued_at").cast("date")).distinct().count()
    finally:
        folded.unpersist()
    lake.put_note("silver", {"txid": newest.last.txid, "id": newest.last.id})
    return days


def _of_touched_days(bronze: DataFrame, new: DataFrame, known: DataFrame, before: DataFrame) -> DataFrame:
    """Return all events of all jobs that were enqueued on a day on which a job with new events was.

    Args:
        bronze: all events.
        new: the new ones among them.
        known: jobs of silver among which those of the new events are.
        before: all jobs of silver.
    """
    from pyspark.sql import functions as f

    first = f.min(f.struct("occurred_at", "id", begun().alias("begun"))).alias("first")
    seen = new.groupBy("seq").agg(first)
    # A job may be known by a later event alone: that of a claim whose transaction began before the enqueue's.
    earlier = f.col("enqueued_at").isNull() | (f.col("first.occurred_at") < f.col("enqueued_at"))
    day = f.array(f.when(earlier, f.col("first.begun").cast("date")), f.col("job_day").cast("date"))
    both = seen.join(known.select("seq", "enqueued_at", "job_day"), "seq", "left").select(f.explode(day).alias("day"))
    days = sorted(row.day for row in both.where("day is not null").distinct().collect())
    jobs = before.where(f.col("job_day").isin(days)).select("seq").union(seen.select("seq"))
    # An event is never earlier than its job: older day partitions are not even opened.
    return bronze.where(f.col("day") >= days[0].isoformat()).join(jobs, "seq", "left_semi")


def named(events: DataFrame) -> DataFrame:
    """Give events of queues that are gone a name (their number)."""
    from pyspark.sql import functions as f

    return events.withColumn("queue", f.coalesce("queue", f.concat(f.lit("#"), "queue_id"))).withColumn(
        "project", f.coalesce("project", f.lit(""))
    )


def figure(lake: Lake, wanted_wait: float = 5.0) -> list[str]:
    """Write the gold tables from silver. Returns their names."""
    attempts, jobs = lake.read(lake.silver("attempts")), lake.read(lake.silver("jobs"))
    # Each is two tables, or the ground of another: computed once.
    latencies = metrics.latencies(attempts, jobs).persist()
    weekly = metrics.hour_of_week(attempts, jobs).persist()

    def written(table: tuple[str, DataFrame]) -> str:
        name, frame = table
        frame.coalesce(1).write.mode("overwrite").parquet(lake.gold(name))
        return name

    try:
        tables = {
            "latency": latencies.where("of = 'task'").drop("of"),
            "capacity": weekly,
            "throughput": metrics.throughput(attempts, jobs),
            "backlog": metrics.backlog(jobs),
            "in_flight": metrics.in_flight(attempts),
            "nodes": metrics.node_health(attempts),
            "poison": metrics.poison(attempts, jobs),
            "leases": metrics.lease_advice(attempts),
            "queue_latency": latencies.where("of = 'queue'").drop("of", "task"),
            "forecast": metrics.workers_needed(metrics.forecast(weekly, jobs), wanted_wait),
        }
        # Planning one takes as long as computing another: two at a time.
        with ThreadPoolExecutor(2, "gold") as threads:
            return list(threads.map(written, tables.items()))
    finally:
        latencies.unpersist()
        weekly.unpersist()

"""From the lease log to figures: bronze (a stream), silver (attempts and jobs), gold (one table a question).

Every step may be killed and run again: bronze is exactly once by its checkpoint, silver rewrites the days that new
events touch from all events of those days, gold is written anew from silver. So late and repeated events change
nothing, and a second run gives the same tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from . import bronze, layout, metrics
from .bronze import BATCH, ingest
from .layout import BRONZE, Lake
from .metrics.spans import begun

#: Columns of the source's table of jobs that a waiting job is known by.
_WAITING = (
    "seq bigint, queue_id bigint, queue string, project string, state string, name string, created_at timestamp,"
    " dead_at timestamp"
)
#: Partitions of a shuffle up to which gold is planned once.
FEW = 16
#: Rows bound an Arrow batch (10,000). Measuring its bytes after every row, too, took a quarter of silver's fold.
ROWS_ONLY = {"spark.sql.execution.arrow.maxBytesPerBatch": "2147483647"}


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
    tenant_tag: str | None = None,
    accept_loss: bool = False,
    adopt: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Ran:
    """Run the whole pipeline once, over what is new.

    ``source`` has options of the source (docs/reference/lake.md), for example ``{"alias": "default"}``; ``consumer`` is
    the name under which retention knows this lake, ``batch`` the events of a micro-batch. ``wanted_wait`` is the 99th
    percentile of waiting (seconds) that capacity is planned for, ``tenant_tag`` the tag by whose values ``tenants``
    sums up. With ``accept_loss`` it goes on where retention has dropped events that were not read. With ``adopt`` the
    lake of another database or schema becomes this one's. ``tell`` gets a line of each step.
    """
    seconds: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        begin = time.monotonic()
        answer = step()
        seconds[name] = time.monotonic() - begin
        tell(f"{name}: {answer if isinstance(answer, int) else len(answer)} in {seconds[name]:.1f} s")
        return answer

    options: dict[str, Any] = {"consumer": consumer, "batch": batch, "accept_loss": accept_loss, "tell": tell}
    with layout.only_run(lake, source, consumer, adopt=adopt):
        layout.is_current(lake)
        events = timed("bronze (events)", lambda: ingest(lake, source, **options))
        days = timed("silver (days)", lambda: refine(lake))
        unlogged = take_waiting(lake, source)
        # What gold was computed from: a run that was killed before its end has not noted it.
        ground: dict[str, Any] = {name: lake.note(name) for name in ("silver", "waiting")}
        ground |= {"wanted_wait": wanted_wait, "tenant_tag": tenant_tag, "version": layout.GOLD}
        stale = unlogged or lake.note("gold") != ground
        tables = timed("gold (tables)", lambda: figure(lake, wanted_wait, tenant_tag) if stale else [])
        if tables:
            lake.put_note("gold", ground)
        lake.put_note("run", {"ended_at": time.time()})
    return Ran(events, days, tables, seconds)


def refine(lake: Lake) -> int:
    """Rewrite the days of silver that events new in bronze touch. Returns how many."""
    events = bronze.read_or_none(lake)
    # Silver of an older version is written anew.
    before = lake.read_or_none(lake.silver("jobs")) if layout.is_current(lake) else None
    if events is None:
        return 0
    done = lake.note("silver") if before is not None else {}
    txid, number = done.get("txid", 0), done.get("id", 0)
    # A stream that began anew (of a restored database, perhaps) may have brought what numbers do not tell.
    stream = lake.note("bronze").get("stream")
    new = events
    if done.get("stream", stream) == stream:
        # A condition on the transaction alone reaches the files: the number of an event is worked out from its row.
        later = (f.col("txid") > txid) | (f.col("id") > number)
        new = events.where((f.col("txid") >= txid) & later)
        if "writing" in done:
            # A run was killed while it replaced days from this one on: one of them may be gone altogether.
            new = new.unionByName(events.where(f.col("day") >= done["writing"]))
    last, at = f.max(f.struct("txid", "id")).alias("last"), f.unix_micros(f.max("occurred_at")).alias("at")
    newest = new.agg(last, at, f.min("seq").alias("lowest")).first()
    if newest is None or newest.lowest is None:
        return 0
    touched = None
    if before is not None:
        known = before.where(f.col("seq") >= newest.lowest)
        touched, events = _of_touched_days(lake, events, new, known)
        if lake.format == "parquet":
            lake.put_note("silver", {**done, "writing": touched[0]})
    # One pass gives both tables.
    folded = metrics.fold(named(events)).persist()
    try:
        with _settings(lake, ROWS_ONLY):
            lake.write(lake.silver("attempts"), metrics.attempts_of(folded), touched)
        lake.write(lake.silver("jobs"), metrics.jobs_of(folded).drop("job_day"), touched)
        days = folded.select(f.col("enqueued_at").cast("date")).distinct().count()
    finally:
        folded.unpersist()
    if before is None:
        lake.put_note("schema", {"silver": layout.SILVER})
    place = {"txid": newest.last.txid, "id": newest.last.id, "stream": stream}
    lake.put_note("silver", {**place, "newest_at": max(newest.at, done.get("newest_at", newest.at))})
    return days


def _of_touched_days(lake: Lake, every: DataFrame, new: DataFrame, known: DataFrame) -> tuple[list[str], DataFrame]:
    """Return the days on which jobs with new events were enqueued, and all events of the jobs of such days."""
    first = f.min(f.struct("occurred_at", "id", begun().alias("begun"))).alias("first")
    seen = new.groupBy("seq").agg(first)
    # A job may be known by a later event alone: that of a claim whose transaction began before the enqueue's.
    earlier = f.col("enqueued_at").isNull() | (f.col("first.occurred_at") < f.col("enqueued_at"))
    day = f.array(f.when(earlier, f.col("first.begun").cast("date")), f.col("job_day").cast("date"))
    both = seen.join(known.select("seq", "enqueued_at", "job_day"), "seq", "left").select(f.explode(day).alias("day"))
    days = sorted(row.day.isoformat() for row in both.where("day is not null").distinct().collect())
    before = lake.read_or_none(lake.silver("jobs"), ("job_day", "in", days))
    assert before is not None
    jobs = before.where(f.col("job_day").isin(days)).select("seq").union(seen.select("seq"))
    # An event is never earlier than its job: older files are not even opened.
    return days, every.where(f.col("day") >= days[0]).join(jobs, "seq", "left_semi")


def named(events: DataFrame) -> DataFrame:
    """Give events of queues that are gone a name (their number)."""
    queue, project = f.coalesce("queue", f.concat(f.lit("#"), "queue_id")), f.coalesce("project", f.lit(""))
    return events.withColumns({"queue": queue, "project": project})


def silver(lake: Lake, name: str, since: date | None = None) -> DataFrame:
    """Return a table of silver; without rows, but with its columns, while nothing was enqueued or claimed yet."""
    found = lake.read_or_none(lake.silver(name), *([] if since is None else [("job_day", ">=", since.isoformat())]))
    if found is None:
        of = {"attempts": metrics.attempts_of, "jobs": metrics.jobs_of}[name]
        folded = metrics.fold(named(lake.spark.createDataFrame([], BRONZE)))
        found = of(folded).withColumn("job_day", f.col("enqueued_at").cast("date").cast("string"))
    return found if since is None else found.where(f.col("job_day") >= since.isoformat())


def newest_event(lake: Lake) -> datetime | None:
    """Return when the newest event that was read occurred: the one clock of all figures and rules."""
    micros = lake.note("silver").get("newest_at")
    return None if micros is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)


def take_waiting(lake: Lake, source: Mapping[str, str]) -> bool:
    """Write the waiting jobs of which silver knows nothing; return whether there are any, or were in the last run."""
    had = lake.note("waiting").get("jobs", 0)
    live = lake.spark.read.format("leasequeue").options(**source, table="jobs").schema(_WAITING).load()
    waiting = live.where(f.col("state").isin("ready", "delayed") & f.col("dead_at").isNull())
    known = lake.read_or_none(lake.silver("jobs"))
    if known is not None:
        waiting = waiting.join(known.select("seq"), "seq", "left_anti")
    rows = named(waiting).select(
        *("project", "queue", f.col("name").alias("task"), "seq"),
        *(f.col("created_at").alias("enqueued_at"), f.lit("open").alias("state")),
        *[f.lit(0).alias(name) for name in ("deliveries", "expiries", "releases")],
    )
    if not had and rows.isEmpty():
        return False
    path = lake.silver("waiting")
    lake.write(path, rows.coalesce(1))
    written = lake.read_or_none(path)
    count = 0 if written is None else written.count()
    lake.put_note("waiting", {"jobs": count})
    return bool(count or had)


@contextmanager
def tables(
    lake: Lake, wanted_wait: float = 5.0, tenant_tag: str | None = None, since: date | None = None
) -> Iterator[dict[str, DataFrame]]:
    """Give the gold tables as they follow from silver, by name, not computed yet."""
    attempts, jobs = (silver(lake, name, since) for name in ("attempts", "jobs"))
    newest = newest_event(lake)
    waiting = lake.read_or_none(lake.silver("waiting")) if lake.note("waiting").get("jobs") else None
    if waiting is not None:
        # They are read live: what came after the newest event counts as if it came with it.
        came = f.col("enqueued_at") if newest is None else f.least("enqueued_at", f.lit(newest))
        waiting = waiting.withColumn("enqueued_at", came)
        recent = waiting if since is None else waiting.where(f.col("enqueued_at") >= f.lit(since))
        jobs = jobs.unionByName(recent, allowMissingColumns=True)
    # What several tables are computed from is cached: Spark finds it by its plan.
    ground = [of(attempts) for of in (metrics.attempts_by_hour, metrics.attempts_by_minute)]
    twice = (metrics.latencies, metrics.hour_of_week, metrics.daily, metrics.workflow_paths)
    latencies, weekly, days, paths = of_both = [of(attempts, jobs) for of in twice]
    levels = metrics.backlog(jobs)
    kept = [frame.persist() for frame in (*ground, metrics.jobs_by_hour(jobs), *of_both, levels)]
    try:
        yield {
            "latency": latencies.where("of = 'task'").drop("of", "sketch"),
            "capacity": weekly,
            "throughput": metrics.throughput(attempts, jobs),
            "backlog": levels,
            "in_flight": metrics.in_flight(attempts),
            "use": metrics.use(attempts),
            "nodes": metrics.node_health(attempts),
            "poison": metrics.poison(attempts, jobs),
            "leases": metrics.lease_advice(attempts),
            "daily": days,
            "weeks": metrics.weeks(days, newest),
            "objectives": metrics.objectives(attempts, wanted_wait, newest),
            "retry_cost": metrics.retry_cost(attempts, newest),
            "tenants": metrics.tenants(jobs, tenant_tag, newest),
            "time_split": metrics.time_split(jobs, newest),
            "recoveries": metrics.recoveries(levels),
            "changes": metrics.changes(days, newest),
            "span": metrics.span(attempts, jobs, newest),
            "quality": metrics.quality(attempts, jobs),
            "workflows": metrics.workflows(paths),
            "critical_paths": metrics.critical_paths(paths),
            "queue_latency": latencies.where("of = 'queue'").drop("of", "task", "sketch"),
            "forecast": metrics.workers_needed(metrics.forecast(weekly), wanted_wait),
        }
    finally:
        for frame in reversed(kept):
            frame.unpersist()


def figure(lake: Lake, wanted_wait: float = 5.0, tenant_tag: str | None = None) -> list[str]:
    """Write the gold tables from silver. Returns their names."""
    # With few partitions there is nothing to coalesce: planning anew after every shuffle doubles the jobs.
    few = int(lake.spark.conf.get("spark.sql.shuffle.partitions") or 200) <= FEW
    with (
        _settings(lake, {"spark.sql.adaptive.enabled": "false"} if few else {}),
        tables(lake, wanted_wait, tenant_tag) as made,
        # Planning one takes as long as computing another: two at a time.
        ThreadPoolExecutor(2, "gold") as threads,
    ):
        list(threads.map(lake.put, map(lake.gold, made), made.values()))
        return list(made)


@contextmanager
def _settings(lake: Lake, values: Mapping[str, str]) -> Iterator[None]:
    """Set options of the Spark session within the block."""
    conf = lake.spark.conf
    before = {name: conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            conf.set(name, value)
        yield
    finally:
        for name, had in before.items():
            conf.unset(name) if had is None else conf.set(name, had)

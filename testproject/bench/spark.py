"""How fast the lake is, beside what else could do the same in the same run: needs the extra ``spark``."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from django_leasequeue import engine
from django_leasequeue.devdb import DevDBError
from django_leasequeue.engine import ConnectionExecutor, NewJob, pool
from django_leasequeue.models import LakeConsumer

from . import children, tcp_server
from .lake_claims import Claims
from .options import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Where Debian's libpostgresql-jdbc-java puts the driver; without it that figure is left out.
JDBC = Path("/usr/share/java/postgresql.jar")
#: Columns that both readers read.
COLUMNS = "id bigint, txid bigint, occurred_at timestamp, seq bigint, kind smallint, node string, name string"
#: The same, one row a job, in the words of PostgreSQL.
_JOBWISE = (
    "SELECT e.id AS row, e.id * 1024 + u.n - 1 AS id, e.txid, e.occurred_at, u.seq, e.kind, e.node, e.name"
    " FROM leasequeue_leaseevent e CROSS JOIN LATERAL unnest(e.seqs) WITH ORDINALITY AS u(seq, n)"
)
#: Jobs enqueued through the sink and through the engine: a fifth as many as there are events, within these bounds.
FEWEST_JOBS, MOST_JOBS = 20_000, 1_000_000
#: What this is built for, on two idle cores with 5 million events.
READ, DRAIN, SINK, FIGURES, BESIDE, HELD = 1.0, 600_000, 0.6, 40.0, 0.9, 0.8
#: Seconds for which claims are measured alone, and beside a held read.
ALONE = 10.0
#: How often claims are measured without a held read and beside one, in turn.
ROUNDS = 3
_FILL = 10_000
_CONSUMER = "leasequeue-bench"


def _verdict(value: float, target: float, *, least: bool = True) -> str:
    reached = value >= target if least else value <= target
    return f"target {'at least' if least else 'at most'} {target:,g}: {'reached' if reached else 'MISSED'}"


def measure(using: str, tell: Callable[[str], None]) -> Iterator[str]:
    """Yield a line per figure.

    Args:
        using: alias of the database, with events in it (``leasequeue_bench --events``).
        tell: called with what goes on.
    """
    from django_leasequeue import spark

    conf = {"spark.jars": str(JDBC)} if JDBC.exists() else {}
    session = spark.session("leasequeue-bench", memory="2g", conf=conf)
    scratch = Path(tempfile.mkdtemp(prefix="leasequeue-bench-"))
    try:
        yield from _read(session, using, scratch, tell)
        claims = Claims(using)
        try:
            events = yield from _pipeline(session, using, scratch, claims, tell)
            yield from _held(using, claims, tell)
        finally:
            claims.close()
        yield from _sink(session, using, min(MOST_JOBS, max(FEWEST_JOBS, events // 5)), tell)
    finally:
        session.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    answer = work()
    return time.perf_counter() - begin, answer


def _all(frame: DataFrame) -> Callable[[], int]:
    """Read every column of every row (Spark would leave out what nobody asks for)."""

    def work() -> int:
        frame.write.format("noop").mode("overwrite").save()
        return 0

    return work


def _read(session: SparkSession, using: str, scratch: Path, tell: Callable[[str], None]) -> Iterator[str]:
    if not JDBC.exists():
        tell("batch read")
        rows, seconds = _fastest(_source(session, alias=using))
        yield (
            f"batch read: {rows:,} rows, {rows / seconds:,.0f} rows/s; nothing beside it: JDBC's driver is not at"
            f" {JDBC} (Debian: apt install libpostgresql-jdbc-java)"
        )
        return
    tell("batch read: a server that listens on TCP, with a copy of the events")
    try:
        with tcp_server.with_events(using, scratch) as place:
            tell("batch read")
            rows, seconds = _fastest(_source(session, **place))
            tell("batch read through JDBC")
            _, beside = _fastest(_jdbc(session, place))
    except DevDBError as error:
        yield f"batch read: not measured, a server for JDBC could not be started: {error}"
        return
    yield (
        f"batch read: {rows:,} rows, {rows / seconds:,.0f} rows/s; JDBC {rows / beside:,.0f} rows/s;"
        f" ratio {beside / seconds:.2f}, {_verdict(beside / seconds, READ)}"
    )


def _fastest(frame: DataFrame) -> tuple[int, float]:
    """Return the rows, and the seconds of the faster of two reads after one that warms up."""
    rows = frame.count()
    return rows, min(_timed(_all(frame))[0] for _ in range(2))


def _source(session: SparkSession, **options: str) -> DataFrame:
    return session.read.format("leasequeue").options(**options).schema(COLUMNS).load()


def _jdbc(session: SparkSession, place: dict[str, str]) -> DataFrame:
    """JDBC with as many connections as there are cores, cut by number: what a careful user would write."""
    reader = session.read.format("jdbc").options(
        url=f"jdbc:postgresql://{place['host']}:{place['port']}/{place['dbname']}",
        dbtable=f"({_JOBWISE}) e",
        driver="org.postgresql.Driver",
        user=place["user"],
        password=place["password"],
        fetchsize="50000",
    )
    bounds = _source(session, **place).selectExpr("min(id) DIV 1024 AS low", "max(id) DIV 1024 AS high").first()
    if bounds is None or bounds.low is None:
        return reader.load().drop("row")
    cut = {"partitionColumn": "row", "lowerBound": bounds.low, "upperBound": bounds.high + 1, "numPartitions": 8}
    return reader.options(**cut).load().drop("row")


def _pipeline(
    session: SparkSession, using: str, scratch: Path, claims: Claims, tell: Callable[[str], None]
) -> Generator[str, None, int]:
    from django_leasequeue.spark import bronze, pipeline
    from django_leasequeue.spark.layout import Lake

    def drained(name: str) -> tuple[Lake, float, int]:
        lake = Lake(session, str(scratch / name))
        LakeConsumer.objects.using(using).filter(name=_CONSUMER).delete()
        seconds, events = _timed(lambda: bronze.ingest(lake, {"alias": using}, consumer=_CONSUMER))
        return lake, seconds, events

    tell("stream drain, Spark warming up")
    lake, cold, events = drained("lake")
    tell("stream drain")
    _, seconds, _ = drained("warm")
    rate = events / seconds
    yield (
        f"stream drain into Parquet: {events:,} events, {rate:,.0f} events/s"
        f" (the first in a session {events / cold:,.0f}), {_verdict(rate, DRAIN)}"
    )
    tell("silver and gold")
    silver, _ = _timed(lambda: pipeline.refine(lake))
    gold, _ = _timed(lambda: pipeline.figure(lake))
    yield (
        f"silver and gold from {events:,} events: {silver + gold:.1f} s (silver {silver:.1f}, gold {gold:.1f}),"
        f" {_verdict(silver + gold, FIGURES, least=False)} (5 million events)"
    )
    yield _beside(using, claims, lambda: drained("again"), tell)
    LakeConsumer.objects.using(using).filter(name=_CONSUMER).delete()
    return events


def _beside(using: str, claims: Claims, drain: Callable[[], object], tell: Callable[[str], None]) -> str:
    alone: list[float] = []

    def by_themselves() -> None:
        tell("claims alone")
        claims.vacuum()
        alone.append(claims.rate(lambda seconds: seconds < ALONE))

    # Somebody must move the floors, as wherever the queue is used without our workers.
    with children.reaper(using):
        by_themselves()
        tell("claims while the stream drains")
        claims.vacuum()
        beside = claims.rate_during(drain)
        by_themselves()
    usual = sum(alone) / len(alone)
    return (
        f"claims while the stream drains: {beside:,.0f} jobs/s, before and after it {usual:,.0f} jobs/s;"
        f" ratio {beside / usual:.2f}, {_verdict(beside / usual, BESIDE)} (they share the machine with Spark)"
    )


def _held(using: str, claims: Claims, tell: Callable[[str], None]) -> Iterator[str]:
    from django_leasequeue.spark import slices
    from django_leasequeue.spark.database import resolve

    database = resolve({"alias": using})
    alone: list[float] = []
    beside: list[float] = []
    # Somebody must move the floors, as wherever the queue is used without our workers.
    with children.reaper(using):
        for _ in range(ROUNDS):
            for rates in (alone, beside):
                tell(f"claims {'beside a held read' if rates is beside else 'without one'}")
                claims.vacuum()
                held = slices.hold(database, 1, 600) if rates is beside else None
                try:
                    rates.append(claims.rate(lambda seconds: seconds < ALONE))
                finally:
                    if held is not None:
                        with database.connect() as connection:
                            slices.report_read(connection, held.channel)
    ratio = median(beside) / median(alone)
    yield (
        f"claims beside a held read of the source: {median(beside):,.0f} jobs/s,"
        f" without it {median(alone):,.0f} jobs/s; ratio {ratio:.2f}, {_verdict(ratio, HELD)}"
    )


def _sink(session: SparkSession, using: str, count: int, tell: Callable[[str], None]) -> Iterator[str]:
    from pyspark.sql import functions as f

    with pool.connect(using) as connection:
        executor = ConnectionExecutor(connection)
        for name in ("spark-sink", "spark-engine"):
            executor.run(engine.create(name, project=PROJECT, preset="django"))
        try:
            frame = session.range(0, count, 1, 2).select(
                f.concat(f.lit("bench-"), "id").alias("key"), f.to_json(f.struct("id")).alias("data")
            )
            tell("sink")
            sink, _ = _timed(
                lambda: (
                    frame.write.format("leasequeue")
                    .options(alias=using, project=PROJECT, queue="spark-sink")
                    .mode("append")
                    .save()
                )
            )
            tell("engine's bulk enqueue")
            bulk, _ = _timed(lambda: _bulk(executor, count))
            yield (
                f"enqueue of {count:,} jobs: sink {count / sink:,.0f} jobs/s, engine {count / bulk:,.0f} jobs/s;"
                f" ratio {bulk / sink:.2f}, {_verdict(bulk / sink, SINK)}"
            )
        finally:
            for name in ("spark-sink", "spark-engine"):
                executor.run(engine.delete(name, project=PROJECT))


def _bulk(executor: ConnectionExecutor, count: int) -> None:
    for start in range(0, count, _FILL):
        jobs = [
            NewJob(key=f"bench-{number}", data={"id": number}) for number in range(start, min(start + _FILL, count))
        ]
        executor.run(engine.enqueue("spark-engine", jobs, project=PROJECT, create=False, fresh=True))

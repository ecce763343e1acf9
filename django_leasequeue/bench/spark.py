"""How fast the lake is, beside what else could do the same in the same run: needs the extra ``spark``."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import engine
from ..engine import ConnectionExecutor, NewJob, pool
from .options import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Where Debian's libpostgresql-jdbc-java puts the driver; without it that figure is left out.
JDBC = Path("/usr/share/java/postgresql.jar")
#: Columns that both readers read.
COLUMNS = "id bigint, txid bigint, occurred_at timestamp, seq bigint, kind smallint, node string, name string"
#: Jobs enqueued through the sink and through the engine.
JOBS = 200_000
_FILL = 10_000


def measure(using: str, tell: Callable[[str], None]) -> Iterator[str]:
    """Yield a line per figure.

    Args:
        using: alias of the database, with events in it (``leasequeue_bench --events``).
        tell: called with what goes on.
    """
    from .. import spark

    conf = {"spark.jars": str(JDBC)} if JDBC.exists() else {}
    session = spark.session("leasequeue-bench", memory="2g", conf=conf)
    scratch = Path(tempfile.mkdtemp(prefix="leasequeue-bench-"))
    try:
        yield from _read(session, using, tell)
        yield from _pipeline(session, using, scratch, tell)
        yield from _sink(session, using, tell)
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


def _read(session: SparkSession, using: str, tell: Callable[[str], None]) -> Iterator[str]:
    tell("batch read")
    ours = session.read.format("leasequeue").option("alias", using).schema(COLUMNS).load()
    rows = ours.count()
    seconds = min(_timed(_all(ours))[0] for _ in range(2))
    line = f"batch read: {rows:,} rows, {rows / seconds:,.0f} rows/s"
    other = _jdbc(session, using)
    if other is None:
        yield f"{line} (nothing beside it: JDBC needs {JDBC} and a database that listens on TCP)"
        return
    tell("batch read through JDBC")
    beside = min(_timed(_all(other))[0] for _ in range(2))
    yield f"{line}; JDBC {rows / beside:,.0f} rows/s; ratio {beside / seconds:.2f}"


def _jdbc(session: SparkSession, using: str) -> DataFrame | None:
    if not JDBC.exists():
        return None
    parameters = pool.connection_parameters(using)
    host = str(parameters.get("host", "localhost"))
    if host.startswith("/"):
        return None  # JDBC speaks TCP only
    url = f"jdbc:postgresql://{host}:{parameters.get('port', 5432)}/{parameters['dbname']}"
    names = ", ".join(column.split()[0] for column in COLUMNS.split(", "))
    reader = (
        session.read.format("jdbc")
        .option("url", url)
        .option("dbtable", f"(SELECT {names} FROM leasequeue_leaseevent) e")
    )
    return reader.options(
        user=str(parameters["user"]), password=str(parameters.get("password", "")), fetchsize="50000"
    ).load()


def _pipeline(session: SparkSession, using: str, scratch: Path, tell: Callable[[str], None]) -> Iterator[str]:
    from ..spark import consumers, pipeline
    from ..spark.layout import Lake

    lake = Lake(session, str(scratch / "lake"))
    tell("stream drain")
    seconds, events = _timed(lambda: pipeline.ingest(lake, {"alias": using}, consumer="leasequeue-bench"))
    yield f"stream drain into Parquet: {events:,} rows, {events / seconds:,.0f} rows/s"
    tell("silver and gold")
    silver, _ = _timed(lambda: pipeline.refine(lake))
    gold, _ = _timed(lambda: pipeline.figure(lake))
    yield f"silver and gold from {events:,} events: {silver + gold:.1f} s (silver {silver:.1f}, gold {gold:.1f})"
    with pool.connect(using) as connection:
        consumers.forget(connection, "leasequeue-bench")


def _sink(session: SparkSession, using: str, tell: Callable[[str], None]) -> Iterator[str]:
    from pyspark.sql import functions as f

    with pool.connect(using) as connection:
        executor = ConnectionExecutor(connection)
        for name in ("spark-sink", "spark-engine"):
            executor.run(engine.create(name, project=PROJECT, preset="django"))
        try:
            frame = session.range(0, JOBS, 1, 2).select(
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
            bulk, _ = _timed(lambda: _bulk(executor))
            yield (
                f"enqueue of {JOBS:,} jobs: sink {JOBS / sink:,.0f} jobs/s, engine {JOBS / bulk:,.0f} jobs/s,"
                f" ratio {bulk / sink:.2f}"
            )
        finally:
            for name in ("spark-sink", "spark-engine"):
                executor.run(engine.delete(name, project=PROJECT))


def _bulk(executor: ConnectionExecutor) -> None:
    for start in range(0, JOBS, _FILL):
        jobs = [NewJob(key=f"bench-{number}", data={"id": number}) for number in range(start, start + _FILL)]
        executor.run(engine.enqueue("spark-engine", jobs, project=PROJECT, create=False, fresh=True))

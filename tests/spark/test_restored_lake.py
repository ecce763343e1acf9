"""A lake across a restore under load: bronze, silver and gold as if the database had always been one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyarrow import dataset
from pyspark.sql import SparkSession

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, NewJob
from django_leasequeue.spark import bronze, metrics, pipeline, report
from django_leasequeue.spark.layout import FORMATS, Lake
from tests.conftest import HOME
from tests.spark.helpers import place
from tests.spark.query import LIMITS
from tests.support.restoring import age, begin, dump, note_on, restore
from tests.support.temporary_server import TemporaryServer

# Each run computes all figures, at several times the price of any other test here.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.release,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(not LIMITS, reason="pyspark 4.1 asks for the end otherwise"),
]

_LOG = """
SELECT e.id * 1024 + place - 1, e.txid, e.seqs[place], e.node
FROM leasequeue_leaseevent e, generate_series(1, cardinality(e.seqs)) place
"""


def work_on(dsn: str, queue: str, stop: threading.Event) -> None:
    """Enqueue, run and fail jobs, at a rate that a busy machine's Spark follows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        run = ConnectionExecutor(connection).run
        while not stop.wait(0.1):
            run(engine.enqueue(queue, [NewJob(number, name="t") for number in range(4)]))
            jobs = run(engine.claim(queue, "a", 3))
            run(engine.ack([job.seq for job in jobs[:2]], "a", tokens=[job.token for job in jobs[:2]]))
            for job in jobs[2:]:
                failure = engine.Failure("app.Boom", "boom", "", "f1")
                run(engine.release([engine.Release(job.seq, job.token, failure=failure)], "a"))


@contextmanager
def load(dsn: str, queue: str, *, noting: bool = True) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=work_on, args=(dsn, queue, stop)) for _ in range(2)]
    threads += [threading.Thread(target=note_on, args=(dsn, stop))] if noting else []
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def patiently(step: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Take a step again where a busy machine begins no Python within the ten seconds for which Spark waits."""
    while True:
        try:
            step(*args, **options)
        except bronze.PipelineFailed as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return


def log(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return sorted(connection.execute(_LOG).fetchall(), key=str)


def of_bronze(lake: Lake) -> list[tuple[Any, ...]]:
    rows = bronze.read(lake).select("id", "txid", "seq", "node").collect()
    return sorted(map(tuple, rows), key=str)


def contents(lake: Lake, queue: str) -> dict[str, list[str]]:
    """Return what silver and gold have of a queue, read without Spark."""
    found = {}
    for path in KEPT:
        place = Path(lake.path(path))
        # Silver has a directory a day, of which the report reads nothing.
        delta = (place / "_delta_log").is_dir()
        rows = (report._read(place) if delta else dataset.dataset(place, format="parquet").to_table()).to_pylist()
        found[path] = sorted(str(sorted(row.items())) for row in rows if row["queue"] == queue)
    return found


#: What a queue that rests keeps whatever others do: everything but what tells the newest days of the whole lake.
KEPT = [
    "silver/attempts", "silver/jobs",
    *(f"gold/{name}" for name in ("latency", "queue_latency", "throughput", "backlog", "in_flight", "use", "poison")),
]  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_before_and_after(spark: SparkSession, private_server: TemporaryServer, tmp_path: Path, format: str) -> None:
    with TemporaryServer(HOME, migrated=True) as old:
        new = private_server
        with psycopg.connect(old.url(), autocommit=True) as connection:
            for queue in ("before", "after"):
                ConnectionExecutor(connection).run(engine.create(queue))
        age(old)
        lake = Lake(spark, str(tmp_path / "lake"), format)
        with load(old.url(), "before"):
            patiently(bronze.ingest, lake, place(old.url()), batch=200)
        patiently(pipeline.run, lake, place(old.url()))
        assert of_bronze(lake) == log(old.url())
        events, before = of_bronze(lake), contents(lake, "before")
        dump(old, tmp_path / "dump", new.bin_dir)
    restore(tmp_path / "dump", new)
    source = place(new.url())
    with load(new.url(), "after", noting=False):
        lines: list[str] = []
        with pytest.raises(bronze.PipelineFailed, match=r"[\d,]+ rows of the lease log lie above the horizon"):
            patiently(pipeline.run, lake, source, tell=lines.append)
        assert not any("(events)" in line for line in lines), "no line says that nothing was there to be read"
        while True:
            try:
                assert begin(new.url())
                break
            except psycopg.errors.LockNotAvailable:
                pass
        patiently(bronze.ingest, lake, source, batch=200)
    patiently(pipeline.run, lake, source)
    # Every event once, those from before as they were.
    assert of_bronze(lake) == log(new.url())
    assert set(events) < set(of_bronze(lake))
    assert contents(lake, "before") == before
    assert lake.read(lake.gold("quality")).where("violations > 0").count() == 0
    # Silver is what all events together give, whatever came in how many runs.
    every = pipeline.named(bronze.read(lake))
    for name, of in (("attempts", metrics.attempts), ("jobs", metrics.jobs)):
        made = lake.read(lake.silver(name)).drop("job_day")
        expected = of(every).select(made.columns)
        assert sorted(map(str, made.collect())) == sorted(map(str, expected.collect())), name

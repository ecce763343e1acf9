"""Bronze as a Delta table: exactly once by the table's own log, and readable without Spark."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

deltalake = pytest.importorskip("deltalake")

import duckdb  # noqa: E402
import pyarrow as pa  # noqa: E402
from pyspark.sql import functions as f  # noqa: E402

from django_leasequeue.exceptions import InvalidOption  # noqa: E402
from django_leasequeue.spark import bronze, delta, layout, pipeline, report  # noqa: E402
from django_leasequeue.spark.layout import BATCHES, Lake  # noqa: E402
from tests.spark.conftest import Source  # noqa: E402
from tests.spark.helpers import Database, at, event, many  # noqa: E402

FORMAT = "delta"
pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def table(lake: Lake) -> Any:
    found = delta.open_or_none(lake.bronze)
    assert found is not None
    return found


def seqs(lake: Lake) -> list[int]:
    return sorted(row.seq for row in bronze.read(lake).select("seq").collect())


class Killed(BaseException):
    """A driver dies here."""


@pytest.mark.parametrize("when", ["before its commit", "after its commit"])
def test_a_driver_is_killed_around_a_commit(lake: Lake, source: Source, database: Database, when: str) -> None:
    many(database, 100)
    assert bronze.ingest(lake, source.options) == 100
    many(database, 50, occurred_at=at(86_400))
    if when == "after its commit":
        bronze.ingest(lake, source.options)
        # Spark notes a finished batch last: without that note it does the batch again.
        newest = max(Path(lake.checkpoint("bronze"), "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    else:
        (Path(lake.bronze) / "data" / "orphan").mkdir()
        shutil.copy(table(lake).file_uris()[0].removeprefix("file://"), Path(lake.bronze) / "data" / "orphan")
    before = len(table(lake).history())
    bronze.ingest(lake, source.options)
    assert bronze.read(lake).agg(f.count("id"), f.countDistinct("id")).first() == (150, 150)
    assert len(table(lake).history()) == before + (when == "before its commit")


def test_a_new_checkpoint_goes_on_with_the_same_table(lake: Lake, source: Source, database: Database) -> None:
    for start in (1, 101):
        event(database, seq=start)
        bronze.ingest(lake, source.options)
    pipeline.refine(lake)
    event(database, seq=201)
    shutil.rmtree(lake.checkpoint("bronze"))
    # A new stream counts its batches from 0 again: they do not pass for those of the old one, and no row comes twice.
    assert bronze.ingest(lake, source.options) == 3
    assert seqs(lake) == [1, 101, 201]
    event(database, seq=301)
    bronze.ingest(lake, source.options)
    assert seqs(lake) == [1, 101, 201, 301]
    pipeline.refine(lake)
    assert lake.read(lake.silver("jobs")).count() == 4


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", ["attempts", "jobs"])
def test_silver_replaces_days(lake: Lake, source: Source, database: Database, monkeypatch: Any, after: str) -> None:
    for seq, hours in ((1, 0), (2, 1), (3, 24)):
        event(database, seq=seq, occurred_at=at(hours * 3_600))
        event(database, seq=seq, kind=2, node="a", waited=0, occurred_at=at(hours * 3_600 + 1))
    pipeline.run(lake, source.options)
    before = {path: deltalake.DeltaTable(path).version() for path in map(lake.silver, ("attempts", "jobs"))}
    event(database, seq=1, kind=5, ran=5, node="a", occurred_at=at(25 * 3_600))
    bronze.ingest(lake, source.options)
    replace = delta.replace

    def killed(frame: Any, path: str, days: Any = None) -> None:
        replace(frame, path, days)
        if path == lake.silver(after):
            raise Stop

    monkeypatch.setattr(delta, "replace", killed)
    with pytest.raises(Stop):
        pipeline.refine(lake)
    monkeypatch.undo()
    assert lake.read(lake.silver("jobs")).count() == lake.read(lake.silver("attempts")).count() == 3
    assert pipeline.refine(lake) == 1
    states = {row.seq: row.state for row in lake.read(lake.silver("jobs")).collect()}
    assert states == {1: "completed", 2: "open", 3: "open"}
    assert pipeline.refine(lake) == 0
    for path, version in before.items():
        # The other day's files are those of before, and the version of before can still be read.
        table = deltalake.DeltaTable(path)
        now = set(table.file_uris())
        table.load_as_version(version)
        assert [name for name in table.file_uris() if name not in now] != table.file_uris()
        assert table.to_pyarrow_table().num_rows == 3


def test_it_is_read_by_others(lake: Lake, source: Source, database: Database) -> None:
    many(database, 100)
    bronze.ingest(lake, source.options)
    many(database, 50, occurred_at=at(86_400))
    bronze.ingest(lake, source.options)
    place = lake.bronze
    arrow = table(lake).to_pyarrow_table()
    assert sum(map(len, arrow.column("seqs").to_pylist())) == 150
    assert duckdb.sql("SELECT sum(len(seqs)), count(DISTINCT day) FROM arrow").fetchall() == [(150, 2)]
    polars = pytest.importorskip("polars")
    assert polars.scan_delta(place).select(polars.col("seqs").list.len().sum()).collect().item() == 150
    assert polars.read_delta(place, version=0)["seqs"].list.len().sum() == 100
    frame = deltalake.DeltaTable(place, version=0).to_pandas()
    assert frame["seqs"].map(len).sum() == 100
    # Files are skipped by the bounds that the log keeps of them.
    bounds = pa.table(table(lake).get_add_actions(flatten=True)).to_pylist()
    assert sorted(str(row["min.day"]) for row in bounds) == ["2030-01-01", "2030-01-02"]


def test_silver_and_gold_are_read_by_others_and_kept_up(lake: Lake, source: Source, database: Database) -> None:
    polars = pytest.importorskip("polars")
    for hours in (0, 24):
        many(database, 50, jobs=10, occurred_at=at(hours * 3_600))
        event(database, seq=60 + hours, occurred_at=at(hours * 3_600))
        pipeline.run(lake, source.options)
    jobs, hourly = lake.silver("jobs"), lake.gold("throughput")
    by_day = {"2030-01-01": 51, "2030-01-02": 1}
    arrow = duckdb.from_arrow(deltalake.DeltaTable(jobs).to_pyarrow_dataset())
    assert dict(arrow.aggregate("job_day, count(*)").fetchall()) == by_day
    assert dict(polars.read_delta(jobs).group_by("job_day").len().iter_rows()) == by_day
    assert deltalake.DeltaTable(jobs).to_pandas().groupby("job_day").size().to_dict() == by_day
    assert polars.read_delta(hourly)["enqueued"].sum() == 52
    assert polars.read_delta(hourly, version=0)["enqueued"].sum() == 51
    gold, _ = report.in_directory(lake.root)
    assert sum(gold["throughput"]["enqueued"].to_pylist()) == 52
    layout.maintain(lake)
    assert dict(polars.read_delta(jobs).group_by("job_day").len().iter_rows()) == by_day
    event(database, seq=1, kind=10, occurred_at=at(25 * 3_600))
    pipeline.run(lake, source.options)
    assert dict(lake.read(jobs).groupBy("state").count().collect()) == {"open": 51, "cancelled": 1}


def test_small_files_are_merged_and_columns_may_come(lake: Lake, source: Source, database: Database) -> None:
    for start in range(3):
        event(database, seq=start + 1)
        bronze.ingest(lake, source.options)
    assert layout.maintain(lake) == 3
    assert len(table(lake).file_uris()) == 1
    assert Path(lake.bronze, "_delta_log", "_last_checkpoint").exists()
    event(database, seq=4)
    bronze.ingest(lake, source.options)
    assert seqs(lake) == [1, 2, 3, 4]
    # As a later version of this package writes it.
    rows = delta.rows(lake.spark, lake.bronze, table(lake)).limit(1)
    rows = rows.withColumns({"id": f.lit(99).cast("bigint"), "added": f.lit("x")})
    delta.follow_schema(table(lake), rows)
    assert delta.rows(lake.spark, lake.bronze, table(lake)).where("added is null").count() == 4
    with pytest.raises(InvalidOption, match="other types of id"):
        delta.follow_schema(table(lake), rows.withColumn("id", f.lit("text")))


def test_files_are_removed_that_no_version_of_last_week_needs(lake: Lake, source: Source, database: Database) -> None:
    for start in range(2):
        event(database, seq=start + 1)
        bronze.ingest(lake, source.options)
    data = Path(lake.bronze, "data")
    merged = {Path(name.removeprefix("file://")) for name in table(lake).file_uris()}
    table(lake).optimize.compact()
    event(database, seq=3)
    bronze.ingest(lake, source.options)
    young, old = (data / f"killed-{word}.parquet" for word in ("now", "before"))
    for path in (young, old):
        shutil.copy(min(merged), path)
    layout.maintain(lake)
    assert {*merged, young, old} <= set(data.rglob("*.parquet"))
    # The same eight days later: what was merged, and what a killed driver left, was taken out of use that long ago.
    week = 8 * 86_400
    os.utime(old, (time.time() - week,) * 2)
    log = Path(lake.bronze, "_delta_log")
    for name in ("_last_checkpoint", *(path.name for path in log.glob("*.checkpoint.parquet"))):
        (log / name).unlink()
    for path in log.glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for removed in (line["remove"] for line in lines if "remove" in line):
            removed["deletionTimestamp"] -= week * 1_000
        path.write_text("\n".join(map(json.dumps, lines)))
    layout.maintain(lake)
    assert {*merged, young, old} & set(data.rglob("*.parquet")) == {young}
    assert seqs(lake) == [1, 2, 3]


def test_without_the_extra_it_is_parquet(lake: Lake, source: Source, database: Database, monkeypatch: Any) -> None:
    assert Lake(lake.spark, lake.root).format == "delta"
    monkeypatch.setattr("django_leasequeue.spark.delta.find_spec", lambda name: None)
    with pytest.raises(InvalidOption, match="django-leasequeue\\[delta\\]"):
        bronze.ingest(lake, {})
    plain = Lake(lake.spark, lake.root)
    assert plain.format == "parquet"
    event(database, seq=1)
    pipeline.run(plain, source.options)
    monkeypatch.undo()
    # A lake goes on as it began.
    assert Lake(lake.spark, lake.root).format == "parquet"
    with pytest.raises(InvalidOption, match="tables in the format 'parquet', not 'delta'"):
        pipeline.run(lake, source.options)
    with pytest.raises(InvalidOption, match="one of parquet, delta"):
        Lake(lake.spark, lake.root, "iceberg")


def test_a_first_batch_without_rows_makes_the_table(lake: Lake, source: Source, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id": "a-stream"}')
    frame = bronze.with_days(source.session.createDataFrame([], BATCHES))
    bronze.append_batch(frame, 0, lake.root, str(checkpoint))
    made = table(lake)
    assert (made.file_uris(), made.transaction_version("a-stream")) == ([], 0)

"""Bronze as a Delta table: exactly once by the table's own log, and readable without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

deltalake = pytest.importorskip("deltalake")

import duckdb  # noqa: E402
import pyarrow as pa  # noqa: E402
from pyspark.sql import functions as f  # noqa: E402

from django_leasequeue.exceptions import InvalidOption  # noqa: E402
from django_leasequeue.spark import bronze, delta, pipeline  # noqa: E402
from django_leasequeue.spark.layout import Lake  # noqa: E402
from tests.spark.conftest import Source  # noqa: E402
from tests.spark.helpers import at, event, many  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def lake(source: Source, tmp_path: Path) -> Lake:
    return Lake(source.session, str(tmp_path / "lake"), "delta")


def table(lake: Lake) -> Any:
    found = delta.open_or_none(lake)
    assert found is not None
    return found


def seqs(lake: Lake) -> list[int]:
    return sorted(row.seq for row in bronze.read(lake).select("seq").collect())


class Killed(BaseException):
    """A driver dies here."""


@pytest.mark.parametrize("when", ["before its commit", "after its commit"])
def test_a_driver_killed_around_a_commit_neither_loses_nor_repeats(
    lake: Lake, source: Source, database: psycopg.Connection[Any], when: str
) -> None:
    many(database, 100)
    assert bronze.ingest(lake, source.options) == 100
    many(database, 50, occurred_at=at(86_400))
    if when == "after its commit":
        bronze.ingest(lake, source.options)
        # Spark notes a finished batch last: without that note it does the batch again.
        newest = max(Path(lake.checkpoint("bronze.delta"), "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    else:
        (Path(delta.uri(lake)) / "data" / "orphan").mkdir()
        shutil.copy(table(lake).file_uris()[0].removeprefix("file://"), Path(delta.uri(lake)) / "data" / "orphan")
    before = len(table(lake).history())
    bronze.ingest(lake, source.options)
    assert bronze.read(lake).agg(f.count("id"), f.countDistinct("id")).first() == (150, 150)
    assert len(table(lake).history()) == before + (when == "before its commit")


def test_a_new_checkpoint_goes_on_with_the_same_table(
    lake: Lake, source: Source, database: psycopg.Connection[Any]
) -> None:
    for start in (1, 101):
        event(database, seq=start)
        bronze.ingest(lake, source.options)
    pipeline.refine(lake)
    event(database, seq=201)
    shutil.rmtree(lake.checkpoint("bronze.delta"))
    # A new stream counts its batches from 0 again: they do not pass for those of the old one, and no row comes twice.
    assert bronze.ingest(lake, source.options) == 3
    assert seqs(lake) == [1, 101, 201]
    event(database, seq=301)
    bronze.ingest(lake, source.options)
    assert seqs(lake) == [1, 101, 201, 301]
    pipeline.refine(lake)
    assert lake.read(lake.silver("jobs")).count() == 4


def test_a_lake_that_turns_to_delta_keeps_what_it_has(
    lake: Lake, source: Source, database: psycopg.Connection[Any]
) -> None:
    event(database, seq=1)
    pipeline.run(Lake(lake.spark, lake.root), source.options)
    database.execute("TRUNCATE leasequeue_leaseevent")
    event(database, seq=2)
    pipeline.run(lake, source.options)
    event(database, seq=1, kind=10)
    pipeline.run(lake, source.options)
    states = {row.seq: row.state for row in lake.read(lake.silver("jobs")).collect()}
    assert states == {1: "cancelled", 2: "open"}


def test_it_is_read_by_others(lake: Lake, source: Source, database: psycopg.Connection[Any]) -> None:
    many(database, 100)
    bronze.ingest(lake, source.options)
    many(database, 50, occurred_at=at(86_400))
    bronze.ingest(lake, source.options)
    place = delta.uri(lake)
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


def test_small_files_are_merged_and_columns_may_come(
    lake: Lake, source: Source, database: psycopg.Connection[Any]
) -> None:
    for start in range(3):
        event(database, seq=start + 1)
        bronze.ingest(lake, source.options)
    assert delta.maintain(lake) == 3
    assert len(table(lake).file_uris()) == 1
    assert Path(delta.uri(lake), "_delta_log", "_last_checkpoint").exists()
    event(database, seq=4)
    bronze.ingest(lake, source.options)
    assert seqs(lake) == [1, 2, 3, 4]
    # As a later version of this package writes it.
    rows = delta.rows(lake, table(lake)).limit(1).withColumns({"id": f.lit(99).cast("bigint"), "added": f.lit("x")})
    delta._follow_schema(table(lake), rows)
    assert delta.rows(lake, table(lake)).where("added is null").count() == 4
    with pytest.raises(InvalidOption, match="other types of id"):
        delta._follow_schema(table(lake), rows.withColumn("id", f.lit("text")))


def test_without_the_extra_it_says_what_to_install(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "installed", lambda: False)
    with pytest.raises(InvalidOption, match="django-leasequeue\\[delta\\]"):
        bronze.ingest(lake, {})
    assert delta.open_or_none(Lake(lake.spark, lake.root)) is None
    (Path(delta.uri(lake)) / "_delta_log").mkdir(parents=True)
    (Path(delta.uri(lake)) / "_delta_log" / "0.json").write_text(json.dumps({}))
    with pytest.raises(InvalidOption, match="has or wants a Delta table"):
        bronze.read_or_none(Lake(lake.spark, lake.root))
    with pytest.raises(InvalidOption, match="one of parquet, delta"):
        Lake(lake.spark, lake.root, "iceberg")

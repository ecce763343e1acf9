"""The files beside the report: exact as Parquet, safe to open in a spreadsheet as CSV; the files that it reads."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import functions as f

from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.spark import bronze, pipeline, report
from django_leasequeue.spark.layout import Lake
from tests.spark.conftest import plan
from tests.spark.helpers import at
from tests.spark.history import SCHEMA, History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_formulas_are_text_in_csv_and_as_they_were_in_parquet(tmp_path: Path) -> None:
    columns = {
        "queue": pa.array(["=cmd|' /C calc'!A0", "orders", None], pa.string()),
        "error_type": pa.array(["@SUM(1)", "-1", "a=b"], pa.large_string()),
        "nodes": pa.array([["+1", "x"], [], None], pa.list_(pa.string())),
        "hours": pa.array([[-1, 2], None, []], pa.list_(pa.int64())),
        "n": pa.array([-1, 0, None], pa.int64()),
    }
    report._save(pa.table(columns), tmp_path / "poison")
    with (tmp_path / "poison.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == list(columns)
    assert rows == [
        ["'=cmd|' /C calc'!A0", "'@SUM(1)", "'+1 x", "'-1 2", "-1"],
        ["orders", "'-1", "", "", "0"],
        ["", "a=b", "", "", ""],
    ]
    assert parquet.read_table(tmp_path / "poison.parquet").to_pydict() == {
        name: column.to_pylist() for name, column in columns.items()
    }


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_report_of_some_days_opens_no_files_of_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    if format == "delta":
        pytest.importorskip("deltalake")
    lake, history = Lake(spark, str(tmp_path / "lake"), format), History()
    for day in range(10):
        history.job(86_400 * day, ("a", 86_400 * day + 1, 86_400 * day + 2, "acked"))
    events = spark.createDataFrame(history.rows, SCHEMA).withColumn("queue_id", f.lit(1))
    monkeypatch.setattr(bronze, "read_or_none", lambda lake: bronze.with_days(events))
    assert pipeline.refine(lake) == 10
    pipeline.figure(lake)

    newest = pipeline.silver(lake, "jobs", at(86_400 * 3).date())
    assert newest.count() == 7
    if format == "delta":
        assert (len(newest.inputFiles()), len(pipeline.silver(lake, "jobs").inputFiles())) == (7, 10)
    else:
        (scan,) = [line for line in plan(newest).splitlines() if "PartitionFilters" in line]
        assert "isnotnull(job_day#" in scan
        assert f" >= {at(86_400 * 3).date()})" in scan

    text = report.write(*report.by_spark(lake, 7), tmp_path / "newest").read_text()
    assert "Events from Friday 4 January 2030, 12:00" in text
    # What pyarrow reads alone is what Spark reads.
    lake.put_note("run", {"ended_at": at(0).timestamp()})
    (gold, run), (same, same_run) = report.in_directory(lake.root), report.by_spark(lake)
    assert run == same_run == {"ended_at": at(0).timestamp()}
    assert {name: table.to_pylist() for name, table in gold.items()} == {
        name: table.to_pylist() for name, table in same.items()
    }
    assert "Events from Tuesday 1 January 2030, 12:00" in report.write(gold, run, tmp_path / "all").read_text()
    with pytest.raises(InvalidOption, match="run the pipeline first"):
        report.in_directory(tmp_path)

"""The files beside the report: exact as Parquet, safe to open in a spreadsheet as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from django_leasequeue.spark import report


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

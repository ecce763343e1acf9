"""Rows of the log that Spark takes apart in bronze are what they are when the source gives a row a job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from django_leasequeue.spark import arrow, bronze
from django_leasequeue.spark.arrow import arrow_schema
from django_leasequeue.spark.layout import BATCHES, BRONZE
from django_leasequeue.spark.tables import EVENT_KINDS
from tests.spark.helpers import at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UID = "0d7f1a52-6f4e-4c58-9d0e-3a1b5f6c7d8e"
#: Of every kind, and one of a newer release: with arrays, without, with nulls in them; with a detail and without.
ARRAYS: tuple[dict[str, Any], ...] = (
    {"seqs": [3], "detail": None},
    {"seqs": [5, 2**62, 4], "deliveries": [1, None, 3], "waited": [None, 0, 2**31 - 1], "ran": [7, None, None]},
    {"seqs": [8, 9], "deliveries": [None, None], "ran": [0, -1], "node": "", "name": "ünïcode 😀", "claim": 2**62},
    {
        "seqs": list(range(1, 1001)), "waited": list(range(1000)), "deadline": at(30.000001), "queue": "q",
        "project": "p",
    },
)  # fmt: skip
LINKS = (
    ([1], {"parents": [[]]}),
    ([2, 3], {"parents": [[], [1, 2**62]], "labels": ['ünïcode "quoted" \\ / 😀\n', ""]}),
    ([4, 5], {"parents": [[1], [2, 3]], "labels": ["a", "b"], "tolerant": [False, True]}),
)


def logged() -> list[dict[str, Any]]:
    rows = [
        {**arrays, "kind": kind, "detail": arrays.get("detail", json.dumps({"text": f"of {kind}"}))}
        for kind in (*EVENT_KINDS, 999)
        for arrays in ARRAYS
        if kind != arrow.LINKED
    ]
    for seqs, said in LINKS:
        detail = json.dumps({"workflow": UID, "name": "nightly", **said})
        rows.append({"seqs": seqs, "kind": arrow.LINKED, "detail": detail})
    numbers = {"queue_id": 2**40, "claim": None, "occurred_at": at(86_400.000001)}
    return [{**numbers, **row, "id": number, "txid": 10 * number} for number, row in enumerate(rows, 1)]


def test_taken_apart_by_spark_and_by_the_source_they_are_the_same(spark: SparkSession) -> None:
    columns = [(name, kind) for name, kind in (column.split() for column in BATCHES.split(", "))]
    rows = pa.RecordBatch.from_pylist(logged(), arrow_schema(columns))
    wanted = [(name, kind) for name, kind in (column.split() for column in BRONZE.split(", "))]
    expected = arrow.events(rows, wanted).cast(arrow_schema(wanted))

    frame = bronze.with_days(spark.createDataFrame(pa.Table.from_batches([rows]), BATCHES))
    found = bronze.by_job(frame).orderBy("id").toArrow()
    assert {str(day) for day in found.column("day").to_pylist()} == {"2030-01-02"}
    assert len(expected) > 11_000
    assert found.column_names == [*expected.schema.names, "day"]
    for name in expected.schema.names:
        assert found.column(name).to_pylist() == expected.column(name).to_pylist(), name

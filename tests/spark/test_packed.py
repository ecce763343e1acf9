"""Rows of the log are what they are sent as one value each column or one by one, taken apart by Spark or by the source.

A role that may only read gets them with what docs/reference/lake.md tells to grant.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from django_leasequeue.engine import partitions
from django_leasequeue.engine.pool import connect
from django_leasequeue.spark import arrow, bronze, tables
from django_leasequeue.spark.database import resolve
from django_leasequeue.spark.layout import BATCHES, BRONZE
from django_leasequeue.spark.source import Slice, query, read
from tests.engine.helpers import make, one, put
from tests.engine.lease_log import drawn, put_back
from tests.spark.conftest import Source
from tests.spark.helpers import NOON, Database, at, batch, event, many, work
from tests.support.documents import blocks

pytestmark = pytest.mark.django_db(transaction=True)

ODD = "tab\tquote\"'comma,\nline\\N ünïcode 😀"
#: Columns that bronze leaves out.
ROW = [("kind", "smallint"), *(tuple(column.split()) for column in BRONZE.split(", "))]


@pytest.fixture
def log(database: Database) -> None:
    """Write what the engine writes, and what a log may hold at most."""
    work()
    for number, text in enumerate([ODD, "", None, "NULL", " "], start=1):
        event(database, seq=number, node=text, detail=None if text is None else {"text": text})
    jobs = {"occurred_at": at(0.000001), "queue_id": 2**40, "low": 4, "high": 2**63 - 1}
    batch(database, kind=2, seqs=[4, 2**63 - 1], deliveries=[3, 1], waited=[10, 2**31 - 1], deadline=NOON, **jobs)
    batch(database, kind=5, seqs=[9, 4], ran=[None, 5], claim=2**62, **jobs)
    batch(database, kind=11, seqs=[4, 9], detail={"workflow": "w", "name": "n", "parents": [[], [4]]}, **jobs)
    many(database, 2_500, jobs=1_000)


def read_all(
    test_dsn: str, table: tables.Table, columns: list[tuple[str, str]], *, as_one: bool, where: str = "true"
) -> list[pa.RecordBatch]:
    place = table.places[0]
    with resolve({"dsn": test_dsn}).connect() as connection:
        asked = table, columns, place, sql.Identifier(place.relation), sql.SQL(where)
        texts = [query(*asked, as_one=form).as_string(connection) for form in (False, True)]
        return list(read(connection, Slice(texts[0], as_one=texts[1] if as_one else None), table, columns))


@pytest.mark.parametrize("table", [tables.EVENTS, tables.BATCHES], ids=["jobs", "rows"])
def test_both_forms_are_the_same(log: None, test_dsn: str, table: tables.Table) -> None:
    columns = ROW if table is tables.EVENTS else [(name, column.type) for name, column in table.columns.items()]
    one_by_one, as_one = (
        pa.Table.from_batches(read_all(test_dsn, table, columns, as_one=form)).sort_by("id") for form in (False, True)
    )
    assert len(as_one) > (2_500 if table is tables.EVENTS else 10)
    assert as_one.schema == one_by_one.schema
    assert as_one.to_pylist() == one_by_one.to_pylist()


def test_too_large_a_value_comes_row_by_row(log: None, test_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_all(test_dsn, tables.EVENTS, ROW, as_one=True, where="false") == []
    expected = read_all(test_dsn, tables.EVENTS, ROW, as_one=False)
    # A value beyond PostgreSQL's limit, at the price of none.
    aggregates = arrow.aggregates
    monkeypatch.setattr(arrow, "aggregates", lambda sent: [*aggregates(sent), "repeat('x', 1100000000)"])
    assert read_all(test_dsn, tables.EVENTS, ROW, as_one=True) == expected


def test_a_kind_of_a_newer_release_has_no_word() -> None:
    kinds = [*tables.EVENT_KINDS, 999]
    rows = pa.RecordBatch.from_pydict(
        {"seqs": pa.array([[1, 2]] * len(kinds), pa.list_(pa.int64())), "kind": pa.array(kinds, pa.int16())}
    )
    words = arrow.events(rows, [("seq", "bigint"), ("event", "string")]).column("event").to_pylist()
    assert words == [word for kind in kinds for word in [tables.EVENT_KINDS.get(kind)] * 2]


UID = "0d7f1a52-6f4e-4c58-9d0e-3a1b5f6c7d8e"
PLACE = {"queue": "q", "project": "p"}
#: Of every kind, and one of a newer release: with arrays, without, with nulls in them; with a detail and without.
ARRAYS: tuple[dict[str, Any], ...] = (
    {"seqs": [3], "detail": None},
    {"seqs": [5, 2**62, 4], "deliveries": [1, None, 3], "waited": [None, 0, 2**31 - 1], "ran": [7, None, None]},
    {"seqs": [8, 9], "deliveries": [None, None], "ran": [0, -1], "node": "", "name": "ünïcode 😀", "claim": 2**62},
    {"seqs": list(range(1, 1001)), "waited": list(range(1000)), "deadline": at(30.000001)} | PLACE,
)
LINKS = (
    ([1], {"parents": [[]]}),
    ([2, 3], {"parents": [[], [1, 2**62]], "labels": ['ünïcode "quoted" \\ / 😀\n', ""]}),
    ([4, 5], {"parents": [[1], [2, 3]], "labels": ["a", "b"], "tolerant": [False, True]}),
)


def logged() -> list[dict[str, Any]]:
    rows = [
        {**arrays, "kind": kind, "detail": arrays.get("detail", json.dumps({"text": f"of {kind}"}))}
        for kind in (*tables.EVENT_KINDS, 999)
        for arrays in ARRAYS
        if kind != arrow.LINKED
    ]
    for seqs, said in LINKS:
        detail = json.dumps({"workflow": UID, "name": "nightly", **said})
        rows.append({"seqs": seqs, "kind": arrow.LINKED, "detail": detail})
    numbers = {"queue_id": 2**40, "claim": None, "occurred_at": at(86_400.000001)}
    return [{**numbers, **row, "id": number, "txid": 10 * number} for number, row in enumerate(rows, 1)]


@pytest.mark.matrix
def test_taken_apart_by_spark_and_by_the_source_they_are_the_same(spark: SparkSession) -> None:
    columns, wanted = ([tuple(column.split()) for column in ddl.split(", ")] for ddl in (BATCHES, BRONZE))
    rows = pa.RecordBatch.from_pylist(logged(), arrow.arrow_schema(columns))
    expected = arrow.events(rows, wanted).cast(arrow.arrow_schema(wanted))
    frame = bronze.with_days(spark.createDataFrame(pa.Table.from_batches([rows]), BATCHES))
    found = bronze.by_job(frame).orderBy("id").toArrow()
    assert {str(day) for day in found.column("day").to_pylist()} == {"2030-01-02"}
    assert len(expected) > 11_000
    assert found.column_names == [*expected.schema.names, "day"]
    for name in expected.schema.names:
        assert found.column(name).to_pylist() == expected.column(name).to_pylist(), name


@pytest.fixture
def reading(source: Source, database: Database) -> Iterator[Source]:
    """The source for a role with the rights that the documentation names; the log is put back as migrations made it."""
    put_back()
    told = [block.text for block in blocks("reference/lake.md")]
    assert set(re.findall(r"^GRANT (\w+)", "\n".join(told), re.MULTILINE)) == {"SELECT"}
    (grants,) = [text for text in told if text.startswith("GRANT")]
    database.execute("CREATE ROLE reporting LOGIN")
    database.execute(grants)
    source.options = {**source.options, "user": "reporting"}
    yield source
    database.execute("DROP OWNED BY reporting; DROP ROLE reporting")
    put_back()


def test_a_role_that_may_only_read_reads_every_partition_also_those_made_later(reading: Source, settings: Any) -> None:
    settings.LEASEQUEUE = {"EVENT_PARTITION_ROWS": 100, "EVENT_PARTITIONS_AHEAD": 2}
    make("work")
    put(3)
    drawn(1_499_990)
    with connect("default") as own:
        assert len(partitions.maintain(own).made) == 2
    put(30, name="later")
    one()
    for number in range(10):
        put(1, name=f"name-{number}")
    rows = reading.read("events").select("id", "queue", "event").collect()
    assert len(rows) == 3 + 30 + 1 + 10
    assert max(row.id for row in rows) // 1024 >= 1_500_000
    assert {row.queue for row in rows} == {"work"}
    assert reading.read("jobs").count() == 43
    assert reading.read("results").count() == 0

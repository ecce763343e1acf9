"""Rows of the log that are sent as one value each column are what they are when they are sent one by one."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from django_leasequeue.spark import arrow, tables
from django_leasequeue.spark.database import resolve
from django_leasequeue.spark.layout import BRONZE
from django_leasequeue.spark.source import Slice, query, read
from tests.spark.helpers import NOON, at, batch, event, many, work

pytestmark = pytest.mark.django_db(transaction=True)

ODD = "tab\tquote\"'comma,\nline\\N ünïcode 😀"
#: Columns that bronze leaves out.
ROW = [("kind", "smallint"), *(tuple(column.split()) for column in BRONZE.split(", "))]


@pytest.fixture
def log(database: psycopg.Connection[Any]) -> None:
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
        texts = [
            query(table, columns, place, sql.Identifier(place.relation), sql.SQL(where), as_one=one).as_string(
                connection
            )
            for one in (False, True)
        ]
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


def test_no_rows_make_no_batch(log: None, test_dsn: str) -> None:
    assert read_all(test_dsn, tables.EVENTS, ROW, as_one=True, where="false") == []


def test_a_kind_of_a_newer_release_has_no_word() -> None:
    kinds = [*tables.EVENT_KINDS, 999]
    rows = pa.RecordBatch.from_pydict(
        {"seqs": pa.array([[1, 2]] * len(kinds), pa.list_(pa.int64())), "kind": pa.array(kinds, pa.int16())}
    )
    words = arrow.events(rows, [("seq", "bigint"), ("event", "string")]).column("event").to_pylist()
    assert words == [word for kind in kinds for word in [tables.EVENT_KINDS.get(kind)] * 2]


def test_what_is_too_large_for_one_value_comes_row_by_row(
    log: None, test_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read_all(test_dsn, tables.EVENTS, ROW, as_one=False)
    # A value beyond PostgreSQL's limit, at the price of none.
    aggregates = arrow.aggregates
    monkeypatch.setattr(arrow, "aggregates", lambda sent: [*aggregates(sent), "repeat('x', 1100000000)"])
    assert read_all(test_dsn, tables.EVENTS, ROW, as_one=True) == expected

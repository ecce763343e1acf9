"""Rows from PostgreSQL as Arrow batches: COPY as CSV into pyarrow's CSV reader (about a million rows a second)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
from pyarrow import csv

#: Bytes of CSV text that become one Arrow batch.
BLOCK = 4 * 1024 * 1024

_ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}


def arrow_schema(columns: list[tuple[str, str]]) -> pa.Schema:
    """Return exactly the Arrow schema that Spark derives from nullable columns of these (name, type) pairs."""
    return pa.schema([pa.field(name, _ARROW[kind], nullable=True) for name, kind in columns])


def batches(
    connection: psycopg.Connection[Any], query: Any, parameters: Any, columns: list[tuple[str, str]]
) -> Iterator[pa.RecordBatch]:
    """Run a query and yield its rows as Arrow batches.

    Args:
        connection: in UTC and ISO (see :mod:`.database`).
        query: a SELECT with as many columns as ``columns``.
        parameters: its parameters.
        columns: name and Spark type of each.
    """
    schema = arrow_schema(columns)
    read = csv.ReadOptions(column_names=[name for name, _ in columns], use_threads=False, block_size=BLOCK * 2)
    parse = csv.ParseOptions(
        newlines_in_values=any(kind == "string" for _, kind in columns),
        # A lone NULL is an empty line.
        ignore_empty_lines=len(columns) > 1,
    )
    convert = csv.ConvertOptions(
        # Bytes come as hexadecimal text.
        column_types={name: pa.string() if kind == "binary" else _ARROW[kind] for name, kind in columns},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )

    def parsed(block: bytearray) -> Iterator[pa.RecordBatch]:
        # A block larger than the reader's own would be cut in two; it is one row or a few, so widen for it.
        options = read if len(block) <= BLOCK * 2 else csv.ReadOptions(
            column_names=read.column_names, use_threads=False, block_size=len(block) + 1
        )  # fmt: skip
        table = csv.read_csv(pa.BufferReader(pa.py_buffer(block)), options, parse, convert)
        for index, (name, kind) in enumerate(columns):
            if kind == "binary":
                cells = [None if text is None else bytes.fromhex(text) for text in table.column(index).to_pylist()]
                table = table.set_column(index, pa.field(name, pa.binary()), pa.array(cells, pa.binary()))
        yield from table.cast(schema).to_batches()

    copying = psycopg.sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(query)
    with connection.cursor() as cursor, cursor.copy(copying, parameters) as copy:
        block = bytearray()
        for row in copy:
            block += row
            if len(block) >= BLOCK:
                yield from parsed(block)
                block = bytearray()
        if block:
            yield from parsed(block)

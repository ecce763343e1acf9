"""Rows from PostgreSQL as Arrow batches: COPY as CSV into pyarrow's CSV reader (about a million rows a second)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import csv

#: Bytes of CSV text that become one Arrow batch.
BLOCK = 4 * 1024 * 1024

#: Spark's types of columns and Arrow's.
ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "array<bigint>": pa.list_(pa.field("element", pa.int64())),
    "array<int>": pa.list_(pa.field("element", pa.int32())),
}
#: What CSV has no type for comes as text.
_TEXT = frozenset({"binary", "array<bigint>", "array<int>"})


def arrow_schema(columns: list[tuple[str, str]]) -> pa.Schema:
    """Return exactly the Arrow schema that Spark derives from nullable columns of these (name, type) pairs."""
    return pa.schema([pa.field(name, ARROW[kind], nullable=True) for name, kind in columns])


def _bytes(texts: pa.StringArray) -> pa.Array:
    """Hexadecimal text as bytes."""
    return pa.array([None if text is None else bytes.fromhex(text) for text in texts.to_pylist()], pa.binary())


def _lists(texts: pa.StringArray, kind: pa.ListType) -> pa.Array:
    """PostgreSQL's arrays of numbers, ``{1,NULL,3}``, as lists."""
    parts = pc.split_pattern(pc.utf8_slice_codeunits(texts, 1, -1), ",")
    numbers = pc.list_flatten(parts)
    numbers = pc.if_else(pc.equal(numbers, "NULL"), pa.scalar(None, pa.string()), numbers).cast(kind.value_type)
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(parts), 0))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    return pa.ListArray.from_arrays(offsets, numbers, type=kind, mask=parts.is_null())


def batches(
    connection: psycopg.Connection[Any], query: Any, parameters: Any, columns: list[tuple[str, str]], size: int = BLOCK
) -> Iterator[pa.RecordBatch]:
    """Run a query and yield its rows as Arrow batches."""
    schema = arrow_schema(columns)
    read = csv.ReadOptions(column_names=[name for name, _ in columns], use_threads=False, block_size=size * 2)
    parse = csv.ParseOptions(
        newlines_in_values=any(kind == "string" for _, kind in columns),
        # A lone NULL is an empty line.
        ignore_empty_lines=len(columns) > 1,
    )
    convert = csv.ConvertOptions(
        column_types={name: pa.string() if kind in _TEXT else ARROW[kind] for name, kind in columns},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )

    def parsed(block: bytearray) -> Iterator[pa.RecordBatch]:
        # A block larger than the reader's own would be cut in two; it is one row or a few, so widen for it.
        options = read if len(block) <= size * 2 else csv.ReadOptions(
            column_names=read.column_names, use_threads=False, block_size=len(block) + 1
        )  # fmt: skip
        table = csv.read_csv(pa.BufferReader(pa.py_buffer(block)), options, parse, convert)
        for index, (name, kind) in enumerate(columns):
            if kind in _TEXT:
                texts = table.column(index).combine_chunks()
                made = _bytes(texts) if kind == "binary" else _lists(texts, ARROW[kind])
                table = table.set_column(index, pa.field(name, ARROW[kind]), made)
        yield from table.cast(schema).to_batches()

    copying = psycopg.sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(query)
    with connection.cursor() as cursor, cursor.copy(copying, parameters) as copy:
        block = bytearray()
        for row in copy:
            block += row
            if len(block) >= size:
                yield from parsed(block)
                block = bytearray()
        if block:
            yield from parsed(block)

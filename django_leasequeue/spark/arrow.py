"""Rows from PostgreSQL as Arrow batches, of the lease log one a job.

A slice is sent column by column: the database puts the values of a column behind one another in their binary form, and
numpy reads them as they lie. That takes a tenth of the time of rows one by one, and makes no text of numbers and times.
What is too large for that comes by COPY as CSV, through pyarrow's reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from pyarrow import compute as pc
from pyarrow import csv

from .tables import EVENT_KINDS, Table

#: Bytes of CSV text that become one Arrow batch.
BLOCK = 4 * 1024 * 1024
#: Spark's types of columns and Arrow's.
ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
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


def ddl_schema(ddl: str) -> pa.Schema:
    """Return the Arrow schema of Spark's DDL text."""
    return arrow_schema([(name, kind) for name, kind in (column.split() for column in ddl.split(", "))])


def _parsed(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Hexadecimal text as bytes, PostgreSQL's arrays of numbers, ``{1,NULL,3}``, as lists."""
    if kind == pa.binary():
        return pa.array([None if text is None else bytes.fromhex(text) for text in texts.to_pylist()], kind)
    parts = pc.split_pattern(pc.utf8_slice_codeunits(texts, 1, -1), ",")
    numbers = pc.list_flatten(parts)
    numbers = pc.if_else(pc.equal(numbers, "NULL"), pa.scalar(None, pa.string()), numbers).cast(kind.value_type)
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(parts), 0))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    return pa.ListArray.from_arrays(offsets, numbers, type=kind, mask=parts.is_null())


def copied(
    connection: psycopg.Connection[Any], query: str, columns: list[tuple[str, str]], size: int = BLOCK
) -> Iterator[pa.RecordBatch]:
    """Run a query and yield its rows as Arrow batches."""
    schema = arrow_schema(columns)
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
        # What is larger than the reader's own block would be cut in two: a long row makes it wider.
        whole = max(len(block) + 1, size * 2)
        read = csv.ReadOptions(column_names=schema.names, use_threads=False, block_size=whole)
        table = csv.read_csv(pa.BufferReader(pa.py_buffer(block)), read, parse, convert)
        for index, (name, kind) in enumerate(columns):
            if kind in _TEXT:
                made = _parsed(table.column(index).combine_chunks(), ARROW[kind])
                table = table.set_column(index, pa.field(name, ARROW[kind]), made)
        yield from table.cast(schema).to_batches()

    copying = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(sql.SQL(query))
    with connection.cursor() as cursor, cursor.copy(copying) as copy:
        block = bytearray()
        for row in copy:
            block += row
            if len(block) >= size:
                yield from parsed(block)
                block = bytearray()
        if block:
            yield from parsed(block)


#: Rows that one statement may put together: PostgreSQL's values end at 1 GB.
MOST = 1_000_000
#: Spark's type -> the function that gives the binary form, and numpy's type.
_FIXED = {
    "bigint": ("int8send", ">i8"), "int": ("int4send", ">i4"), "smallint": ("int2send", ">i2"),
    "timestamp": ("timestamptz_send", ">i8"),
}  # fmt: skip
#: Spark's type -> element, what stands for a null among the elements, words of four bytes of an element.
_PACKED_ARRAYS = {"array<bigint>": ("bigint", -(2**63), 2), "array<int>": ("int", -(2**31), 1)}
#: Microseconds from 1970 to 2000, where PostgreSQL's times begin.
_EPOCH = 946_684_800_000_000
#: Words of four bytes in front of an array's elements (an array without elements has two less), and of each of them.
_HEADER, _LENGTH = 5, 1


def aggregates(columns: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return the SQL of columns (name, type, SQL) that gives a slice in one row, for :func:`packed`."""
    return ["count(*)", *(text for _, kind, column in columns for text in _aggregates(kind, column))]


def _aggregates(kind: str, column: str) -> list[str]:
    if kind in _FIXED:
        send, form = _FIXED[kind]
        # The lowest number stands for null: no sequence gives it, and of times it would be -infinity.
        lowest = "80" + "00" * (np.dtype(form).itemsize - 1)
        return [_joined(f"COALESCE({send}({column}), '\\x{lowest}'::bytea)")]
    if kind in _PACKED_ARRAYS:
        element, null, _ = _PACKED_ARRAYS[kind]
        filled = f"array_replace({column}, NULL, ({null})::{element})"
        return [_joined(f"int4send(COALESCE(cardinality({column}), -1))"), _joined(f"array_send({filled})")]
    length = f"int4send(COALESCE(octet_length(({column})::text), -1))"
    return [_joined(length), _joined(f"textsend(({column})::text)")]


def _joined(value: str) -> str:
    return f"string_agg({value}, ''::bytea)"


def packed(
    connection: psycopg.Connection[Any], query: str, columns: Sequence[tuple[str, str, str]], size: int
) -> Iterator[pa.RecordBatch]:
    """Run a SELECT of :func:`aggregates` and yield its rows, ``size`` at a time."""
    with connection.cursor(binary=True) as cursor:
        row = cursor.execute(sql.SQL(query)).fetchone()
    if row is None or not row[0]:
        return
    values = iter(row[1:])
    arrays = [_array(kind, values) for _, kind, _ in columns]
    rows = pa.RecordBatch.from_arrays(arrays, names=[name for name, *_ in columns])
    for start in range(0, len(rows), size):
        yield rows.slice(start, size)


def _array(kind: str, values: Any) -> pa.Array:
    if kind in _FIXED:
        return _numbers(kind, np.frombuffer(next(values), _FIXED[kind][1]))
    lengths = np.frombuffer(next(values), ">i4").astype(np.int32)
    data = next(values) or b""
    if kind in _PACKED_ARRAYS:
        return _lists(kind, lengths, np.frombuffer(data, ">i4"))
    valid = _valid(lengths >= 0)
    return pa.Array.from_buffers(pa.string(), len(lengths), [valid, _offsets(lengths), pa.py_buffer(data)])


def _numbers(kind: str, found: np.ndarray[Any, Any]) -> pa.Array:
    numbers = found.astype(found.dtype.newbyteorder("="))
    valid = _valid(numbers != np.iinfo(numbers.dtype).min)
    if kind == "timestamp":
        numbers += _EPOCH
    return pa.Array.from_buffers(ARROW[kind], len(numbers), [valid, pa.py_buffer(numbers)])


def _lists(kind: str, lengths: np.ndarray[Any, Any], words: np.ndarray[Any, Any]) -> pa.Array:
    element, _, width = _PACKED_ARRAYS[kind]
    counts = np.maximum(lengths, 0).astype(np.int64)
    step = _LENGTH + width
    sizes = np.where(lengths > 0, _HEADER + counts * step, np.where(lengths == 0, _HEADER - 2, 0))
    starts = np.cumsum(sizes) - sizes
    before = np.cumsum(counts) - counts
    first = np.repeat(starts + _HEADER + _LENGTH - before * step, counts) + np.arange(counts.sum()) * step
    numbers = words[first]
    if width == 2:
        numbers = (numbers.astype(np.int64) << 32) | words[first + 1].astype(np.uint32)
    buffers = [_valid(lengths >= 0), _offsets(lengths)]
    return pa.ListArray.from_buffers(ARROW[kind], len(lengths), buffers, children=[_numbers(element, numbers)])


def _offsets(lengths: np.ndarray[Any, Any]) -> pa.Buffer:
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=ends[1:])
    return pa.py_buffer(ends)


def _valid(there: np.ndarray[Any, Any]) -> pa.Buffer | None:
    return None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))


#: The id of a job's event is that of its row times this, and its place in the row.
PLACES = 1024
#: The kinds of events, and the word for each; one that a newer release writes has none here.
_KINDS, _WORDS = pa.array(list(EVENT_KINDS), pa.int16()), pa.array(list(EVENT_KINDS.values()))
#: Kinds of events that count no delivery: enqueued, redriven, linked.
UNCLAIMED = (1, 9, 11)
#: The kind whose detail says something else of each of its jobs.
LINKED = 11
_ARRAYS = {"deliveries": "array<int>", "waited": "array<int>", "ran": "array<int>"}


def raw(table: Table, columns: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Return what has to be read of each row for these columns: name, type, SQL."""
    names = [name for name, _ in columns if name not in ("seq", "event")]
    if {"deliveries", "detail", "event"} & {name for name, _ in columns} and "kind" not in names:
        names.append("kind")
    read = [("seqs", "array<bigint>", "r.seqs")]
    return read + [(name, _ARRAYS.get(name, table.column(name).type), table.column(name).sql) for name in names]


def events(rows: pa.RecordBatch, columns: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    """Return one row a job, from rows with the columns of :func:`raw`."""
    seqs = rows.column("seqs")
    parents = pc.list_parent_indices(seqs)
    made = []
    for name, _ in columns:
        if name == "seq":
            made.append(pc.list_flatten(seqs))
        elif name == "id":
            made.append(pc.add(pc.multiply(rows.column(name), PLACES).take(parents), _places(seqs, parents)))
        elif name == "deliveries":
            counted = pc.invert(pc.is_in(rows.column("kind"), value_set=pa.array(UNCLAIMED, pa.int16())))
            once = pc.if_else(counted, pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32()))
            made.append(_each(rows.column(name), parents, once.take(parents)))
        elif name == "detail":
            made.append(_details(rows, parents))
        elif name == "event":
            made.append(_WORDS.take(pc.index_in(rows.column("kind"), value_set=_KINDS)).take(parents))
        elif name in _ARRAYS:
            made.append(_each(rows.column(name), parents, pa.nulls(len(parents), pa.int32())))
        else:
            made.append(rows.column(name).take(parents))
    return pa.RecordBatch.from_arrays(made, names=[name for name, _ in columns])


def _places(seqs: pa.ListArray, parents: pa.Array) -> pa.Array:
    """The place of each number in its row, from 0."""
    ends = pc.cumulative_sum(pc.list_value_length(seqs).cast(pa.int64()))
    starts = pc.subtract(ends, pc.list_value_length(seqs))
    return pc.subtract(pc.subtract(pc.cumulative_sum(pa.repeat(1, len(parents))), 1), starts.take(parents))


def _details(rows: pa.RecordBatch, parents: pa.Array) -> pa.Array:
    """The detail of each job: that of its row, and of a job in a workflow what it says of this one."""
    details, linked = rows.column("detail"), pc.equal(rows.column("kind"), LINKED)
    if not pc.any(linked).as_py():
        return details.take(parents)
    # A row of a thousand jobs with all that each of them comes after is not to be repeated a thousand times.
    rest = pc.if_else(linked, pa.scalar(None, pa.string()), details).take(parents)
    own = [text for detail in details.filter(linked).to_pylist() for text in _of_each(json.loads(detail))]
    return pc.replace_with_mask(rest, linked.take(parents), pa.array(own, pa.string()))


def _of_each(detail: dict[str, Any]) -> Iterator[str]:
    """The workflow of each job of a row, what it comes after, and what is said of it alone."""
    count = len(detail["parents"])
    labels, tolerant = detail.get("labels") or [""] * count, detail.get("tolerant") or [False] * count
    for place, parents in enumerate(detail["parents"]):
        said = {"workflow": detail["workflow"], "name": detail["name"], "parents": parents}
        # As Spark writes JSON (see `by_job`).
        told = {**said, "label": labels[place], "tolerant": tolerant[place]}
        yield json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _each(lists: pa.ListArray, parents: pa.Array, otherwise: pa.Array) -> pa.Array:
    """The elements of the lists, and something else for rows that have none."""
    values = pc.list_flatten(lists)
    if not lists.null_count:
        return values
    return pc.replace_with_mask(otherwise, lists.is_valid().take(parents), values) if len(values) else otherwise

"""Rows of the lease log taken apart, one row a job: in Python for the source, in Spark for bronze."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute as pc

from .layout import BRONZE
from .tables import EVENT_KINDS, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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


#: What the detail of a row of linked jobs says: of all of them, and in lists with an element of each.
_LINKS = {
    "workflow": "string",
    "name": "string",
    "parents": "array<array<bigint>>",
    "labels": "array<string>",
    "tolerant": "array<boolean>",
}


def by_job(rows: DataFrame) -> DataFrame:
    """Return one row a job."""
    from pyspark.sql import functions as f

    # What is the same of a row's jobs is worked out before they part; a thousand links are not read a thousand times.
    # (As a variant: what from_json is part of runs uncompiled.)
    links = f.struct(*[f.variant_get(f.parse_json("detail"), f"$.{name}", _LINKS[name]).alias(name) for name in _LINKS])
    told = rows.withColumns({"event": _word(), "links": f.when(f.col("kind") == LINKED, links)})
    each = told.select("*", f.posexplode("seqs").alias("place", "seq")).withColumns(
        {
            "id": f.col("id") * PLACES + f.col("place"),
            "deliveries": f.when(f.col("deliveries").isNotNull(), _at("deliveries")).when(
                ~f.col("kind").isin(*UNCLAIMED), 1
            ),
            "waited": _at("waited"),
            "ran": _at("ran"),
            "detail": f.when(f.col("kind") == LINKED, _link()).otherwise(f.col("detail")),
        }
    )
    return each.select(*[column.split()[0] for column in BRONZE.split(", ")], "day")


def _at(column: str) -> Column:
    from pyspark.sql import functions as f

    return f.get(column, f.col("place"))


def _word() -> Column:
    """Return the word of the kind; null for one that a newer release writes."""
    from pyspark.sql import functions as f

    said: Column = f.lit(None).cast("string")
    for kind, word in EVENT_KINDS.items():
        said = f.when(f.col("kind") == kind, word).otherwise(said)
    return said


def _link() -> Column:
    """Return the workflow of a job, what it comes after, and what is said of it alone."""
    from pyspark.sql import functions as f

    return f.to_json(
        f.struct(
            "links.workflow",
            "links.name",
            _at("links.parents").alias("parents"),
            f.coalesce(_at("links.labels"), f.lit("")).alias("label"),
            f.coalesce(_at("links.tolerant"), f.lit(False)).alias("tolerant"),
        )
    )

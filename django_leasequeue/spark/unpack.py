"""Rows of the lease log as bronze keeps them, taken apart by Spark: one row a job, as :mod:`.jobwise` gives them.

Only SQL functions, so that Spark reads no column that nobody asks for, and opens no file that a condition on ``day``,
``txid`` or another column of the row leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .jobwise import LINKED, PLACES, UNCLAIMED
from .layout import BRONZE
from .tables import EVENT_KINDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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

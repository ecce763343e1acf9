"""The data pipeline on Spark: the lease log as a lake.

``spark.read.format("leasequeue")``, ``spark.readStream`` and ``df.write`` of the same name work by themselves wherever
this package is installed. The package's own calls are here; they import pyspark when they are used, Django never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["session", "table"]


def table(lake: str, name: str) -> DataFrame:
    """Return a table of a lake, for example ``silver/jobs`` or ``gold/latency``; a table of gold in its order.

    Args:
        lake: the path of the lake.
        name: the table's path in it.

    Raises:
        InvalidOption: the table is not there (yet), or is a Delta table and the extra ``delta`` is not installed.
    """
    from pyspark.sql import functions as f

    from .layout import TABLES, Lake, order

    found = Lake(session(), lake)
    frame, (layer, _, word) = found.read(found.path(name)), name.partition("/")
    if layer != "gold" or not TABLES.get(word):
        return frame
    by = [f.desc_nulls_last(column) if falls else f.asc_nulls_last(column) for column, falls in order(word)]
    return frame.orderBy(*by)

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
    """Return a table of a lake, for example ``silver/jobs`` or ``gold/latency``, Delta or Parquet.

    Args:
        lake: the path of the lake.
        name: the table's path in it.

    Raises:
        InvalidOption: the table is not there (yet), or is a Delta table and the extra ``delta`` is not installed.
    """
    from .layout import Lake

    found = Lake(session(), lake)
    return found.read(found.path(name))

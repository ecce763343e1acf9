"""The data pipeline on Spark: the lease log as a lake.

``spark.read.format("leasequeue")``, ``spark.readStream`` and ``df.write`` of the same name work by themselves wherever
this package is installed. The package's own calls are here; they import pyspark when they are used, Django never.
"""

from __future__ import annotations

from .session import session

__all__ = ["session"]

"""A compacted copy of bronze, one file a day, for readers without Spark.

A killed stream leaves files that Spark's own reader knows to skip and others do not. So other readers take this copy,
or the list of bronze files that Spark vouches for (``bronze/manifest``).
"""

from __future__ import annotations

from . import bronze
from .layout import Lake

#: What is the same of two rows is one event. (Numbers begin anew in a restored database.)
_ONE = ["id", "seq", "occurred_at"]


def compact(lake: Lake) -> int:
    """Write days that are new or changed to ``compact/events/day=...``, and both manifests. Returns how many days.

    A day counts as changed when its number of events did. Events that came twice are written once.
    """
    from pyspark.sql import functions as f

    events = bronze.read(lake)
    files = sorted(events.inputFiles())
    lake.spark.createDataFrame([(name,) for name in files], "file string").coalesce(1).write.mode("overwrite").json(
        lake.path("bronze", "manifest")
    )
    before = lake.note("compact")
    days = {row.day: [row.n, row.last] for row in events.groupBy("day").agg(
        f.countDistinct(*_ONE).alias("n"), f.max("id").alias("last")).collect()}  # fmt: skip
    changed = sorted(day for day, figure in days.items() if before.get(day) != figure)
    if changed:
        rows = events.where(f.col("day").isin(changed)).dropDuplicates(_ONE)
        writer = rows.repartition("day").sortWithinPartitions("day", "id").write.partitionBy("day").mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").parquet(lake.path("compact", "events"))
        lake.put_note("compact", days)
    return len(changed)

"""A compacted copy of bronze, one file a day, for readers without Spark.

A killed stream leaves files that Spark's own reader knows to skip and others do not. So other readers take this copy,
or the list of bronze files that Spark vouches for (``bronze/manifest``).
"""

from __future__ import annotations

from .layout import Lake


def compact(lake: Lake) -> int:
    """Write days that are new or changed to ``compact/events/day=...``, and both manifests. Returns how many days.

    A day counts as changed when its number of events did. Events that came twice are written once.
    """
    from pyspark.sql import functions as f

    bronze = lake.read(lake.bronze)
    files = sorted(bronze.inputFiles())
    lake.spark.createDataFrame([(name,) for name in files], "file string").coalesce(1).write.mode("overwrite").json(
        lake.path("bronze", "manifest")
    )
    before = lake.note("compact")
    days = {row.day: [row.n, row.last] for row in bronze.groupBy("day").agg(
        f.countDistinct("id").alias("n"), f.max("id").alias("last")).collect()}  # fmt: skip
    changed = sorted(day for day, figure in days.items() if before.get(day) != figure)
    if changed:
        rows = bronze.where(f.col("day").isin(changed)).dropDuplicates(["id"])
        writer = rows.repartition("day").sortWithinPartitions("day", "id").write.partitionBy("day").mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").parquet(lake.path("compact", "events"))
        lake.put_note("compact", days)
    return len(changed)

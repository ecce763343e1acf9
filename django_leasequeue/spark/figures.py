"""The newest gold figures in the database, so that the admin shows them without Spark."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from ..models import LakeFigure
from .layout import Lake

#: Hours kept of a queue.
HOURS = 168


def keep(lake: Lake, using: str = "default") -> int:
    """Copy the newest hours of each queue into the database. Returns how many rows were written."""
    from pyspark.sql import functions as f

    counts = lake.read(lake.gold("throughput")).groupBy("project", "queue", "hour")
    sums = counts.agg(
        *[f.sum(name).alias(name) for name in ("enqueued", "claimed", "completed", "failed", "redelivered")]
    )
    latency = (
        lake.read(lake.gold("queue_latency"))
        .groupBy("project", "queue", "hour")
        .pivot("measure", ["wait", "run", "total"])
        .agg(f.first(f.struct("p50", "p95", "p99")))
    )
    newest = sums.agg(f.max("hour").alias("newest"))
    rows = (
        sums.join(latency, ["project", "queue", "hour"], "left")
        .crossJoin(newest)
        .where(f.col("hour") > f.col("newest") - f.expr(f"interval {HOURS} hours"))
        .drop("newest")
        .toArrow()
        .to_pylist()
    )
    now = timezone.now()

    def figure(row: dict[str, Any]) -> LakeFigure:
        project, queue, hour = row.pop("project"), row.pop("queue"), row.pop("hour")
        return LakeFigure(project=project, queue=queue[:255], hour=hour, figures=row, computed_at=now)

    figures = LakeFigure.objects.using(using)
    made = figures.bulk_create(
        [figure(row) for row in rows],
        batch_size=1_000,
        update_conflicts=True,
        unique_fields=["project", "queue", "hour"],
        update_fields=["figures", "computed_at"],
    )
    figures.filter(computed_at__lt=now).delete()
    return len(made)

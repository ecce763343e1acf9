"""The report: one HTML page that opens anywhere, its tables as Parquet and CSV beside it, and figures for the admin.

Of a lake in a directory it needs pyarrow alone; Spark reads the others, and computes the report of some days.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from ..engine.dead import redaction
from ..exceptions import InvalidOption
from ..models import LakeFigure
from . import delta
from .advice import Links
from .layout import TABLES
from .page import html

if TYPE_CHECKING:
    import pyarrow as pa

    from .layout import Lake

#: The slowest workflows of the newest seven days that a report has, and of each the steps that took longest.
MOST_WORKFLOWS, MOST_STEPS = 1_000, 5
#: Hours of each queue that the database keeps figures of.
HOURS = 168

Gold = Mapping[str, "pa.Table"]


def in_directory(root: str | Path) -> tuple[Gold, dict[str, Any]]:
    """Read the gold tables of a lake in a local directory, and the note of its last run, without Spark."""
    from pyarrow import dataset

    gold = {}
    for name in TABLES:
        path = Path(root, "gold", name)
        if not path.is_dir():
            raise InvalidOption(f"There is nothing at {path} yet: run the pipeline first (leasequeue_lake run).")
        if (path / "_delta_log").is_dir():
            table = delta.open_or_none(str(path))
            assert table is not None
            gold[name] = table.to_pyarrow_table()
        else:
            gold[name] = dataset.dataset(path, format="parquet").to_table()
    lines = [path.read_text() for path in Path(root, "_notes", "run").glob("part-*")]
    return gold, json.loads(lines[0]) if lines else {}


def by_spark(lake: Lake, days: int | None = None) -> tuple[Gold, dict[str, Any]]:
    """Read the gold tables of a lake, and the note of its last run, by Spark."""
    from pyspark.sql import functions as f

    from .pipeline import tables

    gold, run = {name: lake.read(lake.gold(name)) for name in TABLES}, lake.note("run")
    if days is None:
        return {name: frame.toArrow() for name, frame in gold.items()}, run
    ((newest,),) = gold["span"].agg(f.max("newest_at").cast("date")).collect()
    ((wanted,),) = gold["forecast"].agg(f.coalesce(f.max("wanted_wait"), f.lit(5.0))).collect()
    since = None if newest is None else newest - timedelta(days=days - 1)
    with tables(lake, wanted, lake.note("gold").get("tenant_tag"), since) as found:
        return {name: frame.toArrow() for name, frame in found.items()}, run


def write(gold: Gold, run: Mapping[str, Any], directory: Path, *, site: str | None = None) -> Path:
    """Write the report."""
    directory.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, table in {**gold, **_slowest(gold["workflows"], gold["critical_paths"])}.items():
        _save(table, directory / name)
        # The page is drawn of few columns of small tables; these two are for programs.
        rows[name] = table.to_pylist() if name not in {"latency", "daily"} else []
    rows["run"] = [{"at": datetime.fromtimestamp(run["ended_at"], UTC)}] if run else []
    page = directory / "report.html"
    draft = page.with_suffix(".draft")
    draft.write_text(html(rows, links=Links.of(site)), encoding="utf-8")
    draft.replace(page)
    return page


def _slowest(workflows: pa.Table, paths: pa.Table) -> Gold:
    """The slowest workflows of the newest seven days, and their steps that took longest."""
    from pyarrow import compute as pc

    newest = pc.max(workflows["started_at"]).as_py()
    if newest is None:
        return {"workflows": workflows.slice(0, 0), "critical_paths": paths.slice(0, 0)}
    recent = workflows.filter(pc.field("started_at") > newest - timedelta(days=7))
    slowest = recent.sort_by([("elapsed", "descending"), ("workflow", "ascending")]).slice(0, MOST_WORKFLOWS)
    shown = pc.field("workflow").isin(slowest["workflow"].combine_chunks())
    steps = paths.filter((pc.field("rank") <= MOST_STEPS) & shown)
    return {"workflows": slowest, "critical_paths": steps.sort_by([("workflow", "ascending"), ("step", "ascending")])}


def _save(table: Any, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import csv, parquet

    parquet.write_table(table, path.with_suffix(".parquet"))
    # Sketches are for programs.
    sketches = (pa.binary(), pa.large_binary())
    table = table.select([field.name for field in table.schema if field.type not in sketches])
    for index, field in enumerate(table.schema):
        listed = pa.types.is_list(field.type)
        if listed or pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            # CSV has no lists, and people open it in spreadsheets.
            cells = [" ".join(map(str, cell)) if isinstance(cell, list) else cell for cell in table[index].to_pylist()]
            texts = [None if cell is None else redaction.as_text(cell) for cell in cells]
            table = table.set_column(index, field.name, pa.array(texts, pa.string()))
    csv.write_csv(table, path.with_suffix(".csv"))


def keep_figures(lake: Lake, using: str = "default") -> int:
    """Copy the newest hours of each queue into the database. Returns how many rows were written."""
    from pyspark.sql import functions as f

    key = ["project", "queue", "hour"]
    counts = [f.sum(name).alias(name) for name in ("enqueued", "claimed", "completed", "failed", "redelivered")]
    sums = lake.read(lake.gold("throughput")).groupBy(*key).agg(*counts)
    measures = lake.read(lake.gold("queue_latency")).groupBy(*key).pivot("measure", ["wait", "run", "total"])
    latency = measures.agg(f.first(f.struct("p50", "p95", "p99")))
    every = sums.join(latency, key, "left").crossJoin(sums.agg(f.max("hour").alias("newest")))
    rows = every.where(f"hour > newest - interval {HOURS} hours").drop("newest").toArrow().to_pylist()
    now = timezone.now()

    def figure(row: dict[str, Any]) -> LakeFigure:
        project, queue, hour = map(row.pop, key)
        return LakeFigure(project=project, queue=queue[:255], hour=hour, figures=row, computed_at=now)

    figures = LakeFigure.objects.using(using)
    conflicts: dict[str, Any] = {"unique_fields": key, "update_fields": ["figures", "computed_at"]}
    made = figures.bulk_create([figure(row) for row in rows], 1_000, update_conflicts=True, **conflicts)
    figures.filter(computed_at__lt=now).delete()
    return len(made)

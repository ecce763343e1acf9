"""The report: one HTML page that opens anywhere, and its tables as Parquet and CSV beside it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine import csvguard
from .advice import Links
from .layout import Lake
from .page import html
from .pipeline import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLES = (
    *("latency", "queue_latency", "daily", "weeks", "throughput", "backlog", "in_flight", "use"),
    *("nodes", "poison", "leases", "capacity", "forecast", "span", "quality", "workflows", "critical_paths"),
)
#: The slowest workflows of the newest seven days that a report has, and of each the steps that took longest.
MOST_WORKFLOWS, MOST_STEPS = 1_000, 5


def write(lake: Lake, directory: Path, *, site: str | None = None, days: int | None = None) -> Path:
    """Write the report of a lake's gold tables.

    Args:
        lake: a lake through which the pipeline ran.
        directory: a local directory; made if it is missing.
        site: address of the site whose admin the page links to, for example ``https://ops.example.com``; without it the
            page links nowhere.
        days: only of jobs that were enqueued on the newest so many days (UTC): computed from silver, of which the files
            of other days are not opened.

    Returns:
        The path of the HTML page.
    """
    gold = {name: lake.read(lake.gold(name)) for name in TABLES}
    directory.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[dict[str, Any]]] = {}
    with nullcontext(gold) if days is None else _newest(lake, gold, days) as found:
        for name, frame in (found | _slowest(found["workflows"], found["critical_paths"])).items():
            arrow = frame.toArrow()
            _save(arrow, directory / name)
            rows[name] = arrow.to_pylist()
    run = lake.note("run")
    rows["run"] = [{"at": datetime.fromtimestamp(run["ended_at"], UTC)}] if run else []
    page = directory / "report.html"
    draft = page.with_suffix(".draft")
    draft.write_text(html(rows, links=Links.of(site)), encoding="utf-8")
    draft.replace(page)
    return page


def _newest(lake: Lake, gold: dict[str, DataFrame], days: int) -> AbstractContextManager[dict[str, DataFrame]]:
    """The tables of the newest days alone, with the wanted wait of the last run."""
    from pyspark.sql import functions as f

    newest = gold["span"].agg(f.max("newest_at").cast("date")).first()
    wanted = gold["forecast"].agg(f.coalesce(f.max("wanted_wait"), f.lit(5.0))).first()
    assert newest is not None
    assert wanted is not None
    return tables(lake, wanted[0], None if newest[0] is None else newest[0] - timedelta(days=days - 1))


def _slowest(workflows: DataFrame, paths: DataFrame) -> dict[str, DataFrame]:
    """The slowest workflows of the newest seven days, and their steps that took longest."""
    from pyspark.sql import functions as f

    newest = workflows.agg(f.max("started_at").alias("newest"))
    recent = workflows.crossJoin(f.broadcast(newest)).where("started_at > newest - interval 7 days").drop("newest")
    slowest = recent.orderBy(f.desc_nulls_last("elapsed"), "workflow").limit(MOST_WORKFLOWS)
    steps = paths.where(f.col("rank") <= MOST_STEPS).join(slowest.select("workflow"), "workflow", "left_semi")
    return {"workflows": slowest, "critical_paths": steps.orderBy("workflow", "step")}


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
            texts = [None if cell is None else _text(cell) for cell in table.column(index).to_pylist()]
            table = table.set_column(index, field.name, pa.array(texts, pa.string()))
    csv.write_csv(table, path.with_suffix(".csv"))


def _text(cell: str | list[Any]) -> str:
    """Return a cell for CSV, which has no lists, and which people open in spreadsheets."""
    return csvguard.as_text(cell if isinstance(cell, str) else " ".join(map(str, cell)))

"""The report: one HTML page that opens anywhere, its tables as Parquet and CSV beside it, and figures for the admin.

Of a lake in a directory it needs pyarrow alone; Spark reads the others, and computes the report of some days.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from ..engine.dead import export
from ..exceptions import InvalidOption
from ..models import LakeFigure
from . import delta
from .advice import Links, lasted, when
from .layout import TABLES, order
from .page import html

if TYPE_CHECKING:
    import pyarrow as pa

    from .layout import Lake

#: The slowest workflows of the newest seven days that a report has, and of each the steps that took longest.
MOST_WORKFLOWS, MOST_STEPS = 1_000, 5
#: Hours of each queue that the database keeps figures of.
HOURS = 168
_FORMULA = "^({})".format("|".join(rf"\Q{mark}\E" for mark in export.FORMULA))

Gold = Mapping[str, "pa.Table"]


def in_directory(root: str | Path) -> tuple[Gold, dict[str, Any]]:
    """Read the gold tables of a lake in a local directory, and the note of its last run, without Spark."""
    gold = {name: _read(Path(root, "gold", name)) for name in TABLES}
    return gold, note(Path(root), "run")


def _read(path: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import parquet

    if not path.is_dir():
        raise InvalidOption(f"There is nothing at {path} yet: run the pipeline first (leasequeue_lake run).")
    table = delta.open_or_none(str(path)) if (path / "_delta_log").is_dir() else None
    files = path.glob("[!._]*.parquet") if table is None else table.file_uris()
    # Datasets import pandas (see _text).
    parts = [parquet.ParquetFile(file).read() for file in files]
    return pa.concat_tables(parts) if parts or table is None else pa.schema(table.schema()).empty_table()


def by_spark(lake: Lake, days: int | None = None) -> tuple[Gold, dict[str, Any]]:
    """Read the gold tables of a lake, and the note of its last run, by Spark."""
    from .pipeline import newest_event, tables

    run, ground = lake.note("run"), lake.note("gold")
    if days is None:
        return {name: lake.read(lake.gold(name)).toArrow() for name in TABLES}, run
    newest = newest_event(lake)
    since = newest and newest.date() - timedelta(days=days - 1)
    with tables(lake, ground.get("wanted_wait", 5.0), ground.get("tenant_tag"), since) as found:
        return {name: frame.toArrow() for name, frame in found.items()}, run


def write(
    gold: Gold, run: Mapping[str, Any], directory: Path, *, site: str | None = None, waiting: str | None = None
) -> Path:
    """Write the report; ``waiting`` stands at its head: what the lake cannot read."""
    import pyarrow as pa

    directory.mkdir(parents=True, exist_ok=True)
    gold = {name: _in_order(name, table) for name, table in gold.items()}
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, table in {**gold, **_slowest(gold)}.items():
        _save(table, directory / name)
        # Times with a zone import pandas, as _text says; without one they are UTC.
        naive = [f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in table.schema]
        # The page is drawn of few columns of small tables; these two are for programs.
        rows[name] = table.cast(pa.schema(naive)).to_pylist() if name not in {"latency", "daily"} else []
    rows["run"] = [{"at": datetime.fromtimestamp(run["ended_at"], UTC)}] if run else []
    rows["waiting"] = [{"text": waiting}] if waiting else []
    page = directory / "report.html"
    draft = page.with_suffix(".draft")
    draft.write_text(html(rows, links=Links.of(site)), encoding="utf-8")
    draft.replace(page)
    return page


def _in_order(name: str, table: pa.Table) -> pa.Table:
    """Sort what is shown where it is read: whatever lists the first few has the right ones."""
    from pyarrow import compute as pc

    by = [(column, "descending" if falls else "ascending") for column, falls in order(name)]
    return table.take(pc.sort_indices(table, by)) if by else table


def _slowest(gold: Gold) -> Gold:
    """The slowest workflows of the newest seven days, and their steps that took longest."""
    from pyarrow import compute as pc

    workflows, paths, newest = gold["workflows"], gold["critical_paths"], pc.max(gold["span"]["newest_at"])
    age = pc.seconds_between(workflows["started_at"], newest)
    slowest = workflows.filter(pc.less(age, _text("604800").cast("int64"))).slice(0, MOST_WORKFLOWS)
    few = pc.less_equal(paths["rank"], _text(str(MOST_STEPS)).cast("int64"))
    shown = pc.is_in(paths["workflow"], slowest["workflow"])
    return {"workflows": slowest, "critical_paths": paths.filter(pc.and_(few, shown))}


def _text(value: str) -> Any:
    """Return a text of Arrow. ``pa.scalar`` and ``pa.array`` import pandas, a sixth of the report's time."""
    import pyarrow as pa

    bounds = struct.pack("=ii", 0, len(value))
    return pa.StringArray.from_buffers(1, pa.py_buffer(bounds), pa.py_buffer(value.encode("ascii")))[0]


def _save(table: Any, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import compute as pc
    from pyarrow import csv, parquet

    parquet.write_table(table, path.with_suffix(".parquet"))
    # Sketches are for programs.
    table = table.select([field.name for field in table.schema if field.type not in (pa.binary(), pa.large_binary())])
    for index, field in enumerate(table.schema):
        cells = table[index]
        if pa.types.is_list(field.type):
            cells = pc.binary_join(cells.cast(pa.list_(pa.string())), _text(" "))  # CSV has no lists
        if cells.type in (pa.string(), pa.large_string()):
            # People open it in spreadsheets.
            table = table.set_column(index, field.name, pc.replace_substring_regex(cells, _FORMULA, r"'\1"))
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
    figures = LakeFigure.objects.using(using)
    conflicts: dict[str, Any] = {"unique_fields": key, "update_fields": ["figures", "computed_at"]}
    found = [LakeFigure(**{name: row.pop(name) for name in key}, figures=row, computed_at=now) for row in rows]
    made = figures.bulk_create(found, 1_000, update_conflicts=True, **conflicts)
    figures.filter(computed_at__lt=now).delete()
    return len(made)


_SILVER = ("bronze/log", "bronze/events", "silver/attempts", "silver/jobs", "silver/waiting")


def note(root: Path, name: str) -> dict[str, Any]:
    """Return a note of the lake, empty where there is none."""
    lines = [path.read_text(encoding="utf-8") for path in (root / "_notes" / name).glob("part-*")]
    return dict(json.loads(lines[0])) if lines else {}


def inventory(root: Path, now: datetime) -> Iterator[str]:
    """Yield a line for a lake in a directory and one for each of its tables: format, freshness, order."""
    newest, run = note(root, "silver").get("newest_at"), note(root, "run").get("ended_at")
    told = "no events" if newest is None else f"events up to {when(datetime.fromtimestamp(newest / 1e6, UTC))} UTC"
    yield f"lake {root}: {told}, {'no run' if run is None else f'last run {_ago(run, now)}'}"
    for name in (*_SILVER, *(f"gold/{name}" for name in TABLES)):
        path = root / name
        if not path.is_dir():
            continue
        if (path / "_delta_log").is_dir():
            table = delta.open_or_none(str(path))
            assert table is not None
            (last,) = table.history(1)
            told, at = f"Delta, version {table.version()}", last["timestamp"] / 1_000
        else:
            told, at = "Parquet", max((each.stat().st_mtime for each in path.iterdir()), default=path.stat().st_mtime)
        by = TABLES.get(name.partition("/")[2], "") if name.startswith("gold/") else ""
        yield f"table {name}: {told}, written {_ago(at, now)}, {f'ordered by {by}' if by else 'in no order'}"


def _ago(at: float, now: datetime) -> str:
    return f"{lasted(max(now.timestamp() - at, 0.0))} ago"

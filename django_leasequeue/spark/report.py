"""The report: one HTML page that opens anywhere, and its tables as Parquet and CSV beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..engine import csvguard
from .advice import Links
from .layout import Lake
from .page import html

TABLES = (
    *("latency", "queue_latency", "daily", "weeks", "throughput", "backlog", "in_flight"),
    *("nodes", "poison", "leases", "capacity", "forecast", "span", "quality"),
)


def write(lake: Lake, directory: Path, *, site: str | None = None) -> Path:
    """Write the report of a lake's gold tables.

    Args:
        lake: a lake through which the pipeline ran.
        directory: a local directory; made if it is missing.
        site: address of the site whose admin the page links to, for example ``https://ops.example.com``; without it the
            page links nowhere.

    Returns:
        The path of the HTML page.
    """
    tables = {name: lake.read(lake.gold(name)) for name in TABLES}
    directory.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, frame in tables.items():
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

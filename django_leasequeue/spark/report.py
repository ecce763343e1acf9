"""The report: one HTML page with charts that opens anywhere, and its tables as Parquet and CSV beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from ..engine import csvguard
from . import charts
from .layout import Lake

#: Queues drawn in one chart, and rows shown of one table. The files beside the page hold everything.
MOST_SERIES = 7
MOST_ROWS = 50
TABLES = (
    "latency",
    "queue_latency",
    "throughput",
    "backlog",
    "in_flight",
    "nodes",
    "poison",
    "leases",
    "capacity",
    "forecast",
)

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1a1a1a }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem } .note, .empty { color: #555 }
svg { width: 100%; height: auto; background: #fff } svg text { font-size: 11px; fill: #444 }
svg .grid { stroke: #ddd; stroke-width: 1 } table { border-collapse: collapse; width: 100%; font-size: 13px }
th, td { text-align: left; padding: .25rem .5rem; border-bottom: 1px solid #ddd } td.n { text-align: right }
.bad { color: #b3261e; font-weight: 600 } .scroll { overflow-x: auto }
@media print { body { margin: 0 } h2 { break-after: avoid } }
"""


def write(lake: Lake, directory: Path) -> Path:
    """Write the report of a lake's gold tables.

    Args:
        lake: a lake through which the pipeline ran.
        directory: a local directory; made if it is missing.

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
    page = directory / "report.html"
    draft = page.with_suffix(".draft")
    draft.write_text(html(rows), encoding="utf-8")
    draft.replace(page)
    return page


def _save(table: Any, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import csv, parquet

    parquet.write_table(table, path.with_suffix(".parquet"))
    for index, field in enumerate(table.schema):
        listed = pa.types.is_list(field.type)
        if listed or pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            texts = [None if cell is None else _text(cell) for cell in table.column(index).to_pylist()]
            table = table.set_column(index, field.name, pa.array(texts, pa.string()))
    csv.write_csv(table, path.with_suffix(".csv"))


def _text(cell: str | list[Any]) -> str:
    """Return a cell for CSV, which has no lists, and which people open in spreadsheets."""
    return csvguard.as_text(cell if isinstance(cell, str) else " ".join(map(str, cell)))


def html(rows: dict[str, list[dict[str, Any]]]) -> str:
    """Return the page for the rows of the gold tables."""
    made = datetime.now(UTC)
    parts = [
        f"<h1>Lease queue report</h1><p class=note>{_span(rows)} Made {made:%Y-%m-%d %H:%M} UTC; times are UTC.</p>",
        _summary(rows),
        "<h2>Backlog</h2>",
        charts.lines("Jobs enqueued and not over, at the end of each hour", _curves(rows["backlog"], "level")),
        "<h2>Waiting for a worker, 99th percentile</h2>",
        charts.lines("Wait, p99", _curves(_measure(rows, "wait"), "p99"), "s"),
        "<h2>Running, 99th percentile</h2>",
        charts.lines("Run, p99", _curves(_measure(rows, "run"), "p99"), "s"),
        "<h2>Enqueue to end, 99th percentile</h2>",
        charts.lines("End to end, p99", _curves(_measure(rows, "total"), "p99"), "s"),
        "<h2>Jobs completed an hour</h2>",
        charts.lines("Completed an hour", _curves(rows["throughput"], "completed")),
        "<h2>Nodes</h2>",
        "<p class=note>Share of attempts that failed or lost their lease. Red: far worse than the others.</p>",
        charts.bars(
            "Unsuccessful attempts, percent",
            [
                (str(row["node"]), 100 * (row["rate"] or 0), row["verdict"] in {"sick", "slow"})
                for row in rows["nodes"][:40]
            ],
            "%",
        ),
        _table(rows["nodes"], ("node", "n", "unsuccessful", "expired", "rate", "others_rate", "speed", "verdict")),
        "<h2>Failures that look alike</h2>",
        _table(
            rows["poison"],
            (
                "queue",
                "task",
                "error_type",
                "fingerprint",
                "failures",
                "jobs",
                "dead",
                "nodes",
                "one_node",
                "first_at",
                "last_at",
            ),
        ),
        "<h2>Lease lengths</h2>",
        _table(
            rows["leases"], ("queue", "task", "n", "lease", "p99", "p999", "near", "expired", "advice", "suggested")
        ),
        "<h2>Load by hour of week</h2>",
        *_weeks(rows["capacity"]),
        "<h2>Workers that would hold the wanted wait</h2>",
        "<p class=note>Concurrent jobs, from the forecast of the busiest hours (M/M/c: the least).</p>",
        _table(
            sorted(rows["forecast"], key=lambda row: -(row["workers"] or 0)),
            ("queue", "hour_of_week", "expected", "trend", "run", "workers", "wanted_wait"),
            most=20,
        ),
    ]
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Lease queue report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>{body}</body></html>'
    )


def _measure(rows: dict[str, list[dict[str, Any]]], name: str) -> list[dict[str, Any]]:
    return [row for row in rows["queue_latency"] if row["measure"] == name]


def _curves(rows: Sequence[dict[str, Any]], column: str) -> list[charts.Series]:
    """Return one curve per queue: the queues with the highest sums, all hours summed over tasks."""
    by_queue: dict[str, dict[datetime, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        if row["hour"] is not None and row[column] is not None:
            by_queue[_queue(row)][row["hour"]] += float(row[column])
    first = sorted(by_queue.items(), key=lambda item: (-sum(item[1].values()), item[0]))[:MOST_SERIES]
    return [(name, sorted(curve.items())) for name, curve in first]


def _queue(row: dict[str, Any]) -> str:
    return f"{row['project']}/{row['queue']}" if row.get("project") else str(row["queue"])


def _span(rows: dict[str, list[dict[str, Any]]]) -> str:
    hours = [row["hour"] for row in rows["backlog"] if row["hour"] is not None]
    return f"{min(hours):%Y-%m-%d %H:00} to {max(hours):%Y-%m-%d %H:59}." if hours else "No events yet."


def _summary(rows: dict[str, list[dict[str, Any]]]) -> str:
    sums = {
        name: sum(row[name] or 0 for row in rows["throughput"])
        for name in ("enqueued", "claimed", "completed", "failed")
    }
    lines = [", ".join(f"<b>{charts.number(value)}</b> {name}" for name, value in sums.items()) + "."]
    ill = [row for row in rows["nodes"] if row["verdict"] in {"sick", "slow"}]
    lines += [
        f"<span class=bad>{escape(str(row['node']))} is {row['verdict']}</span>: {100 * row['rate']:.1f} % unsuccessful"
        f" (the others {100 * (row['others_rate'] or 0):.1f} %), {charts.number(row['speed'])} times the usual run."
        for row in ill[:10]
    ]
    worst = [row for row in rows["poison"] if row["dead"]][:3]
    lines += [
        f"<span class=bad>{row['dead']} dead jobs</span> in {escape(_queue(row))} look alike:"
        f" {escape(str(row['error_type']))} ({escape(str(row['fingerprint']))})."
        for row in worst
    ]
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def _weeks(rows: Sequence[dict[str, Any]]) -> list[str]:
    by_queue: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        if row["hour_of_week"] is not None:
            by_queue[_queue(row)].append((row["hour_of_week"], float(row["arrivals"] or 0)))
    first = sorted(by_queue.items(), key=lambda item: -sum(value for _, value in item[1]))[:3]
    return [f"<h3>{escape(name)}</h3>{charts.week('Jobs an hour', values)}" for name, values in first]


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[str], most: int = MOST_ROWS) -> str:
    if not rows:
        return '<p class="empty">Nothing.</p>'
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_cell(row[name]) for name in columns) + "</tr>" for row in rows[:most])
    more = f'<p class="note">{len(rows) - most} more are in the files beside this page.</p>' if len(rows) > most else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, int | float):
        return f'<td class="n">{charts.number(value)}</td>'
    if isinstance(value, datetime):
        return f"<td>{value:%Y-%m-%d %H:%M:%S}</td>"
    bad = ' class="bad"' if value in {"sick", "slow", "longer"} else ""
    return f"<td{bad}>{escape('' if value is None else str(value))}</td>"

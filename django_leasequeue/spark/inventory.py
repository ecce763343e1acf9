"""The tables of a lake in a directory: format, freshness and order, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import delta
from .advice import lasted, when
from .layout import TABLES

_SILVER = ("bronze/log", "bronze/events", "silver/attempts", "silver/jobs", "silver/waiting")


def note(root: Path, name: str) -> dict[str, Any]:
    """Return a note of the lake, empty where there is none."""
    lines = [path.read_text(encoding="utf-8") for path in (root / "_notes" / name).glob("part-*")]
    return dict(json.loads(lines[0])) if lines else {}


def listed(root: Path, now: datetime) -> Iterator[str]:
    """Yield a line for the lake and one for each of its tables."""
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

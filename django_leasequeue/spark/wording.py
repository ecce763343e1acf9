"""Figures in words, and the critical paths of workflows: where the time went, and what would make them shorter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

#: A row of a gold table, and the rows of all by name.
Row = dict[str, Any]
Rows = Mapping[str, Sequence[Row]]

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def utc(at: datetime) -> datetime:
    """Return a time of Spark's, which bears no zone, as the UTC that it is."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def queue_name(row: Row) -> str:
    """Return the name of a row's queue, with its project."""
    return f"{row['project']}/{row['queue']}" if row.get("project") else str(row["queue"])


def when(at: datetime) -> str:
    """Return a time: ``Thursday 14 March 2030, 09:05``."""
    return f"{utc(at):%A %-d %B %Y, %H:%M}"


def lasted(span: timedelta | float) -> str:
    """Return a duration in its one or two largest units: ``2 days 3 hours``, ``4 minutes``, ``1.5 seconds``."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 120:
        told = f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"
        return f"{told} second{'s' if told != '1' else ''}"
    parts = []
    rest = round(seconds / 60) * 60
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(parts[:2])


def percent(share: float | None) -> str:
    """Return a share: ``37 %``, ``0.4 %``."""
    if share is None:
        return "-"
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def change(this: float | None, last: float | None) -> str:
    """Return a change against the last week: ``+12 %``, ``three times``, ``as before``."""
    if not this or not last:
        return "new" if this else "-"
    ratio = this / last
    if abs(ratio - 1) < 0.005:
        return "as before"
    if ratio > 100:
        return "over 100 times"
    return f"{ratio:.1f} times" if ratio >= 2 else f"{100 * (ratio - 1):+.0f} %"


#: Workflows that are told of.
MOST = 10


class Slow(NamedTuple):
    """The slowest run of a workflow, and what its steps say.

    ``title`` is its name, or its id where it has none; ``runs`` how many of that name are among the slowest. ``place``
    is the queue on which its slowest steps waited longest for a worker, ``queued`` for how long (seconds).
    """

    row: Row
    title: str
    runs: int
    steps: list[Row]
    place: str
    queued: float

    @property
    def took(self) -> float:
        """The seconds of its critical path."""
        return float(self.row["waited"] + self.row["ran"])

    def path(self) -> str:
        """Say where the time went: the slowest steps in their order, and what the others took together."""
        told = [
            f"{step['label'] or step['task'] or 'a job'} ({queue_name(step)}) waited {lasted(step['waited'])}"
            f" and ran {lasted(step['ran'])}"
            for step in self.steps
        ]
        others = self.row["steps"] - len(self.steps)
        if others > 0:
            rest = self.took - sum(step["waited"] + step["ran"] for step in self.steps)
            told.append(f"{others} other steps took {lasted(max(rest, 0.0))}")
        return "; ".join(told)

    def help(self) -> str:
        """Say what would make it shorter."""
        if not self.steps:
            return ""
        ran: dict[str, float] = defaultdict(float)
        for step in self.steps:
            ran[step["task"] or step["label"] or "the job"] += step["ran"]
        task = max(ran, key=lambda name: ran[name])
        held = sum(step["waited"] - step["queued"] for step in self.steps)
        if self.queued >= max(ran[task], held):
            return f"More workers on {self.place}: {lasted(self.queued)} its steps were ready and not claimed"
        if ran[task] >= held:
            return f"A faster {task}, or several in its place: it ran {lasted(ran[task])}"
        return f"A look at limits and retries: {lasted(held)} its steps were held back by them"


def slowest(rows: Rows) -> list[Slow]:
    """Return the slowest run of each workflow, the slowest first."""
    steps: dict[str, list[Row]] = defaultdict(list)
    for step in rows["critical_paths"]:
        steps[step["workflow"]].append(step)
    runs: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows["workflows"]:
        runs[row["project"], row["name"] or row["workflow"]].append(row)
    found = []
    for (project, name), mine in runs.items():
        row = max(mine, key=lambda each: each["waited"] + each["ran"])
        path = sorted(steps[row["workflow"]], key=lambda step: step["step"])
        waits: dict[str, float] = defaultdict(float)
        for step in path:
            waits[queue_name(step)] += step["queued"]
        place = max(waits, key=lambda queue: waits[queue], default="")
        title = f"{project}/{name}" if project else name
        found.append(Slow(row, title, len(mine), path, place, waits[place]))
    return sorted(found, key=lambda slow: (-slow.took, slow.title))[:MOST]

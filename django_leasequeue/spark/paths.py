"""Critical paths of workflows in words: where the time went, and what would make the workflow shorter."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from .wording import Row, Rows, lasted, queue_name

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
            return f"More workers on {self.place}: {lasted(self.queued)} its steps were ready and nobody took them"
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

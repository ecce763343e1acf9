"""The graph of a workflow as a drawing: columns by depth, a box for each job; for many jobs one for those of a name."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ..engine import NodeRow
from ..metrics import charts

#: Jobs of a graph, and of one column of it, that have boxes of their own.
MAX_BOXES, MAX_ROWS = 200, 30
#: Columns of a drawing, names of one column that have a box, and lines between boxes.
MAX_COLUMNS, MAX_NAMES, MAX_LINES = 60, 6, 1_000
#: The states of jobs with the numbers of their colours, those to look at first in front.
TONES = {"failed": 3, "running": 0, "ready": 2, "delayed": 1, "waiting": 5, "cancelled": 5, "completed": 4}
_WIDTH, _LINE, _LETTERS = 190, 15, 26
_SIDE, _BETWEEN_COLUMNS, _BETWEEN_ROWS = 4, 64, 12


class GraphJob(NamedTuple):
    """A node, with what the graph needs of it."""

    seq: int
    name: str
    state: str
    parents: Sequence[int]


@dataclass(eq=False, slots=True)
class Box:
    """A job, or the jobs of one name in a column, counted by state."""

    name: str
    counts: Counter[str]
    x: float = 0.0
    y: float = 0.0

    @property
    def states(self) -> list[str]:
        return [state for state in TONES if self.counts[state]]

    @property
    def lines(self) -> list[str]:
        """The lines below its name: each state, and how many jobs are in it."""
        one = self.counts.total() == 1
        return [state if one else f"{self.counts[state]:,} {state}" for state in self.states]

    @property
    def height(self) -> int:
        return 23 + _LINE * len(self.states)


Columns = list[list[Box]]
Lines = list[tuple[Box, Box]]


def name_of(node: NodeRow) -> str:
    """Return what a job is called in its workflow: its label, else the last part of its task's path."""
    return node.label or (node.task or "").rpartition(".")[2] or "job"


def jobs_of(nodes: Iterable[NodeRow]) -> list[GraphJob]:
    """Return what the graph needs of nodes."""
    return [GraphJob(node.seq, name_of(node), node.state, node.parents or ()) for node in nodes]


def counts_of(jobs: Iterable[GraphJob]) -> list[tuple[str, int]]:
    """Return how many jobs are in each state, those to look at first in front."""
    counts = Counter(job.state for job in jobs)
    return [(state, counts[state]) for state in TONES if counts[state]]


def depths(jobs: Sequence[GraphJob]) -> list[int]:
    """Return how many jobs come before each on its longest way; parents stand before their children."""
    found: dict[int, int] = {}
    for job in jobs:
        found[job.seq] = 1 + max((found.get(parent, -1) for parent in job.parents), default=-1)
    return [found[job.seq] for job in jobs]


def draw(jobs: Sequence[GraphJob]) -> SafeString:
    """Draw a workflow from left to right."""
    if not jobs:
        return SafeString("")
    levels = depths(jobs)
    columns, lines = _boxes(jobs, levels)
    left_out = len(lines) - MAX_LINES
    lines = lines[:MAX_LINES]
    width, height = _arrange(columns, lines)
    counts = ", ".join(f"{count:,} {state}" for state, count in counts_of(jobs))
    described = f"{len(jobs):,} jobs in {max(levels) + 1:,} layers: {counts}. The table below has each."
    if left_out > 0:
        described += f" Lines that are not drawn: {left_out:,}."
    paths = format_html_join("", '<path class="lq-edge" d="{}"/>', ((_path(*line),) for line in lines))
    boxes = format_html_join("", "{}", ((_box(box),) for column in columns for box in column))
    return charts.drawing("graph", "Graph of the workflow", described, width, height, paths + boxes, natural=True)


def _boxes(jobs: Sequence[GraphJob], levels: Sequence[int]) -> tuple[Columns, Lines]:
    """Return the boxes, column by column, and which of them are connected."""
    layers = max(levels) + 1
    step = math.ceil(layers / MAX_COLUMNS)
    groups: list[list[GraphJob]] = [[] for _ in range(math.ceil(layers / step))]
    for job, level in zip(jobs, levels, strict=True):
        groups[level // step].append(job)
    where: dict[int, Box] = {}
    columns = []
    for group in groups:
        single = len(jobs) <= MAX_BOXES and len(group) <= MAX_ROWS and step == 1
        columns.append(_singles(group, where) if single else _sums(group, where))
    place = {box: number for number, column in enumerate(columns) for box in column}
    lines = dict.fromkeys((where[parent], where[job.seq]) for job in jobs for parent in job.parents if parent in where)
    return columns, [(one, other) for one, other in lines if place[one] < place[other]]


def _singles(group: Iterable[GraphJob], where: dict[int, Box]) -> list[Box]:
    made = {job.seq: Box(job.name, Counter([job.state])) for job in group}
    where.update(made)
    return list(made.values())


def _sums(group: Sequence[GraphJob], where: dict[int, Box]) -> list[Box]:
    """Return a box for each of the most frequent names, and one for the others."""
    sizes = Counter(job.name for job in group)
    shown = sizes.most_common(MAX_NAMES if len(sizes) <= MAX_NAMES else MAX_NAMES - 1)
    made = {name: Box(f"{name} ({size:,})", Counter()) for name, size in shown}
    others = Box(f"{len(sizes) - len(shown):,} other names", Counter())
    for job in group:
        box = where[job.seq] = made.get(job.name, others)
        box.counts[job.state] += 1
    return [*made.values(), *([others] if len(sizes) > len(shown) else ())]


def _arrange(columns: Columns, lines: Lines) -> tuple[int, int]:
    """Give every box its place, near its parents' rows; return width and height of all."""
    parents: dict[Box, list[Box]] = {}
    for one, other in lines:
        parents.setdefault(other, []).append(one)
    for number, column in enumerate(columns):
        rows = {box: [parent.y for parent in parents.get(box, ())] for box in column}
        column.sort(key=lambda box: sum(rows[box]) / len(rows[box]) if rows[box] else 0.0)
        y = _SIDE
        for box in column:
            box.x, box.y = _SIDE + number * (_WIDTH + _BETWEEN_COLUMNS), y
            y += box.height + _BETWEEN_ROWS
    height = max(box.y + box.height for column in columns for box in column)
    return len(columns) * (_WIDTH + _BETWEEN_COLUMNS) - _BETWEEN_COLUMNS + 2 * _SIDE, int(height) + _SIDE


def _path(one: Box, other: Box) -> str:
    x, y = one.x + _WIDTH, one.y + one.height / 2
    to_x, to_y = other.x, other.y + other.height / 2
    bend = _BETWEEN_COLUMNS / 2
    return f"M{x:g},{y:g}C{x + bend:g},{y:g} {to_x - bend:g},{to_y:g} {to_x:g},{to_y:g}"


def _box(box: Box) -> SafeString:
    """Draw a box: at its left edge its states by their shares, each in its colour."""
    shares, top, total = [], box.y, box.counts.total()
    for state in box.states:
        high = box.height * box.counts[state] / total
        shares.append((TONES[state], f"{box.x:g}", f"{top:.1f}", f"{high:.1f}"))
        top += high
    name = box.name if len(box.name) <= _LETTERS else f"{box.name[: _LETTERS - 1]}…"
    return format_html(
        '<g class="lq-tone-{}"><title>{}</title><rect class="lq-box" x="{}" y="{}" width="{}" height="{}"/>{}'
        '<text class="lq-loud" x="{}" y="{}">{}</text>{}</g>',
        TONES[box.states[0]],
        f"{box.name}: {', '.join(box.lines)}",
        f"{box.x:g}",
        f"{box.y:g}",
        _WIDTH,
        box.height,
        format_html_join("", '<rect class="lq-fill lq-tone-{}" x="{}" y="{}" width="6" height="{}"/>', shares),
        f"{box.x + 14:g}",
        f"{box.y + 16:g}",
        name,
        format_html_join(
            "",
            '<text x="{}" y="{}">{}</text>',
            ((f"{box.x + 14:g}", f"{box.y + 16 + _LINE * n:g}", line) for n, line in enumerate(box.lines, 1)),
        ),
    )

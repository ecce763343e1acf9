"""Workflows in the admin: the list, the page of one with its graph, cancelling, retrying what has failed.

The graph has columns by depth and a box for each job; for many jobs one for those of a name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Count, Min
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from .. import engine
from ..engine.dead.action import RETRY
from ..engine.dead.action import act as act_on_dead
from ..engine.flow.figures import every_node
from ..engine.limits import MAX_BATCH, MAX_SEQ, seq_of
from ..enums import MemberState, WorkflowState
from ..metrics import charts
from ..models import Workflow
from ..templatetags.leasequeue_admin import count
from . import audit, pages, reading

#: Workflows of a page, and those that are looked at for it.
LIST_PAGE, MAX_LOOKED_AT = 50, 5_000
STATES = {str(label): int(value) for value, label in WorkflowState.choices}
#: Jobs of one page of the list, and parents of a job that it names.
PAGE, MAX_PARENTS = 25, 5
_LIST = "leasequeue_workflow_changelist"
_ACTIONS = {"cancel": "cancel_job", "retry": "retry_job"}
#: Jobs of a graph, and of one column of it, that have boxes of their own.
MAX_BOXES, MAX_ROWS = 200, 30
#: Columns of a drawing, names of one column that have a box, and lines between boxes.
MAX_COLUMNS, MAX_NAMES, MAX_LINES = 60, 6, 1_000
#: The states of jobs with the numbers of their colours, those to look at first in front.
TONES = {"failed": 3, "running": 0, "ready": 2, "delayed": 1, "waiting": 5, "cancelled": 5, "completed": 4}
_WIDTH, _LINE, _LETTERS = 190, 15, 26
_SIDE, _BETWEEN_COLUMNS, _BETWEEN_ROWS = 4, 64, 12


@admin.register(Workflow)
class WorkflowAdmin(pages.PageAdmin[Workflow]):
    """Workflows are made by code; here they are looked at, cancelled, and gone on with."""

    def get_urls(self) -> list[URLPattern]:
        listed = self.view(self.changelist, "view_workflow", takes=("state", "name", "below"))
        one = self.view(self.one, "view_workflow", "view_job", takes=("state", "from"))
        return [
            path("", listed, name=_LIST),
            path("<uuid:uid>/", one, name="leasequeue_workflow"),
            path("<uuid:uid>/act/", self.act_view(self.act), name="leasequeue_workflow_act"),
            # The name that Django's own log looks for.
            path("<int:pk>/change/", self.view(self.moved, "view_workflow"), name="leasequeue_workflow_change"),
        ]

    def changelist(self, request: HttpRequest) -> HttpResponse:
        state, name = request.GET.get("state", ""), request.GET.get("name", "").replace("\x00", "").strip()[:255]
        with suppress(ValueError):  # a name
            return self.redirect("leasequeue_workflow", UUID(name))
        below = seq_of(request.GET.get("below", ""))
        looked = _read(STATES.get(state), name, MAX_SEQ if below is None else below)
        query = {key: value for key, value in (("state", state), ("name", name)) if value}
        context = {
            "looked": looked,
            "states": list(STATES),
            "state": state,
            "name": name,
            "filtered": state in STATES or bool(name),
            "first": None if below is None else f"?{urlencode(query)}",
            "next": None if looked["next"] is None else f"?{urlencode({**query, 'below': looked['next']})}",
        }
        return self.page(request, "workflows.html", context, title=_("Workflows"))

    def one(self, request: HttpRequest, uid: UUID) -> HttpResponse:
        workflow = _find(uid)
        nodes = reading.read(every_node(workflow.pk))
        counts = _counts(nodes)
        state = request.GET.get("state", "")
        state = state if state in dict(counts) else ""
        listed = [node for node in nodes if not state or node.state == state]
        start = seq_of(request.GET.get("from", "")) or 0
        start = start if start < len(listed) else 0
        query = {"state": state} if state else {}

        def page(at: int) -> str:
            return f"?{urlencode({**query, 'from': at})}"

        known = {node.seq: node for node in nodes}
        context = {
            "workflow": workflow,
            "counts": counts,
            "chosen": state,
            # The page of a large one is a screen: its jobs are folded until one asks for some.
            "folded": len(nodes) > PAGE and not state and "from" not in request.GET,
            "graph": _draw(nodes),
            "lines": [_line(node, known) for node in listed[start : start + PAGE]],
            "nodes": len(listed),
            "from": start + 1,
            "to": min(start + PAGE, len(listed)),
            "before": page(max(start - PAGE, 0)) if start else None,
            "next": page(start + PAGE) if start + PAGE < len(listed) else None,
            "every": 0 if workflow.ended_at is not None else 5 if len(nodes) <= MAX_BOXES else 30,
        }
        crumbs, title = [(_("Workflows"), _LIST)], _("Workflow {workflow}").format(workflow=workflow)
        return self.page(request, "workflow.html", context, title=title, crumbs=crumbs)

    def moved(self, request: HttpRequest, pk: int) -> HttpResponse:
        workflow = reading.instance(Workflow, pk)
        if workflow is None:
            messages.warning(request, _("This workflow is forgotten: its jobs ended more than a day ago."))
            return self.redirect(_LIST)
        return self.redirect("leasequeue_workflow", workflow.uid)

    def act(self, request: HttpRequest, uid: UUID) -> HttpResponse:
        """Cancel a workflow or retry its dead letters: a POST with ``action``."""
        action = pages.action_of(request, _ACTIONS, "view_workflow", "view_job")
        workflow = _find(uid)
        if action == "cancel":
            _cancel(request, workflow)
        else:
            _retry(request, workflow)
        return self.redirect("leasequeue_workflow", uid)


def _find(uid: UUID) -> Workflow:
    workflow = Workflow.objects.using(reading.alias()).filter(uid=uid).first()
    if workflow is None:
        raise Http404(f"There is no workflow {uid}: it ended more than a day ago, or never was.")
    return workflow


def _cancel(request: HttpRequest, workflow: Workflow) -> None:
    with transaction.atomic(using=reading.alias()):
        removed = reading.run(engine.cancel_workflow(workflow.uid, project=workflow.project))
        if removed is not None:
            state = {"state": [workflow.get_state_display(), "cancelled"]}
            _record(request, "cancel_workflow", workflow, {"removed": removed}, changed=state)
    if removed is None:
        messages.error(request, _("This workflow has ended already."))
    else:
        words = _("The workflow {workflow} is cancelled. Jobs taken out: {number}.")
        messages.success(request, words.format(workflow=workflow, number=count(removed)))


def _retry(request: HttpRequest, workflow: Workflow) -> None:
    nodes = reading.read(every_node(workflow.pk))
    seqs = [node.seq for node in nodes if node.member == MemberState.FAILED and not node.ended]
    done = left = 0
    for start in range(0, len(seqs), MAX_BATCH):
        batch = seqs[start : start + MAX_BATCH]
        # A line for each batch: what is retried and its line stand together, whatever happens next.
        with transaction.atomic(using=reading.alias()):
            acted = reading.run(act_on_dead(RETRY, batch))
            if acted.done:
                _record(request, "retry_workflow", workflow, {"done": acted.done}, batch)
        done, left = done + acted.done, left + len(acted.conflicts)
    if not seqs:
        messages.error(request, _("None of its jobs is a dead letter: what failed for good cannot be retried."))
        return
    if left:
        say = messages.warning
        words = _("Dead letters of {workflow} that are ready again: {done}. Left alone, as they are changing: {left}.")
    else:
        say = messages.success
        words = _("Dead letters of {workflow} that are ready again: {done}. The rest follows them.")
    say(request, words.format(workflow=workflow, done=count(done), left=count(left)))


def _record(
    request: HttpRequest,
    action: str,
    workflow: Workflow,
    counts: dict[str, int],
    seqs: Sequence[int] = (),
    **more: dict[str, list[str]],
) -> None:
    detail = {"workflow": str(workflow.uid), "name": workflow.name, **more}
    audit.record(request, action, obj=workflow, project=workflow.project, seqs=seqs, counts=counts, detail=detail)


def _read(state: int | None, name: str, below: int) -> dict[str, Any]:
    """Read workflows of all projects, the newest first, by their state and a part of the name.

    ``next`` is the id below which the next page begins.
    """
    older = Workflow.objects.using(reading.alias()).filter(pk__lt=below).order_by("-pk")
    looked = older[:MAX_LOOKED_AT].aggregate(count=Count("pk"), lowest=Min("pk"))
    wanted = older.filter(pk__gte=looked["lowest"] or 0)
    if state is not None:
        wanted = wanted.filter(state=state)
    if name:
        wanted = wanted.filter(name__icontains=name)
    found = list(wanted[: LIST_PAGE + 1])
    last = looked["lowest"] if looked["count"] == MAX_LOOKED_AT else None
    if len(found) > LIST_PAGE:
        last = found[LIST_PAGE - 1].pk
    return {"workflows": found[:LIST_PAGE], "looked_at": looked["count"], "next": last}


def _line(node: engine.NodeRow, known: Mapping[int, engine.NodeRow]) -> dict[str, Any]:
    """Return a job as the list shows it; ``more`` is how many parents are not named."""
    parents = node.parents or []
    named = [(seq, _name(known[seq]) if seq in known else _("job")) for seq in parents[:MAX_PARENTS]]
    return {"node": node, "name": _name(node), "parents": named, "more": len(parents) - len(named)}


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
        return [_(state) if one else f"{count(self.counts[state])} {_(state)}" for state in self.states]

    @property
    def height(self) -> int:
        return 23 + _LINE * len(self.states)


Columns = list[list[Box]]
Lines = list[tuple[Box, Box]]


def _name(node: engine.NodeRow) -> str:
    """Return what a job is called in its workflow: its label, else the last part of its task's path."""
    return node.label or (node.task or "").rpartition(".")[2] or _("job")


def _counts(nodes: Iterable[engine.NodeRow]) -> list[tuple[str, int]]:
    counts = Counter(node.state for node in nodes)
    return [(state, counts[state]) for state in TONES if counts[state]]


def _draw(nodes: Sequence[engine.NodeRow]) -> SafeString:
    if not nodes:
        return SafeString("")
    # How many jobs come before each on its longest way: parents stand before their children.
    depths: dict[int, int] = {}
    for node in nodes:
        depths[node.seq] = 1 + max((depths.get(parent, -1) for parent in node.parents or ()), default=-1)
    layers = max(depths.values()) + 1
    columns, lines = _boxes(nodes, depths, layers)
    left_out = len(lines) - MAX_LINES
    lines = lines[:MAX_LINES]
    width, height = _arrange(columns, lines)
    counts = ", ".join(f"{count(number)} {_(state)}" for state, number in _counts(nodes))
    described = _("{number} jobs in {layers} layers: {counts}. The table below has each.").format(
        number=count(len(nodes)), layers=count(layers), counts=counts
    )
    if left_out > 0:
        described += " " + _("Lines that are not drawn: {number}.").format(number=count(left_out))
    paths = format_html_join("", '<path class="lq-edge" d="{}"/>', ((_path(*line),) for line in lines))
    boxes = format_html_join("", "{}", ((_box(box),) for column in columns for box in column))
    return charts.drawing("graph", _("Graph of the workflow"), described, width, height, paths + boxes, natural=True)


def _boxes(nodes: Sequence[engine.NodeRow], depths: Mapping[int, int], layers: int) -> tuple[Columns, Lines]:
    """Return the boxes, column by column, and which of them are connected."""
    step = math.ceil(layers / MAX_COLUMNS)
    groups: list[list[engine.NodeRow]] = [[] for _ in range(math.ceil(layers / step))]
    for node in nodes:
        groups[depths[node.seq] // step].append(node)
    where: dict[int, Box] = {}
    columns = []
    for group in groups:
        if len(nodes) <= MAX_BOXES and len(group) <= MAX_ROWS and step == 1:
            made = {node.seq: Box(_name(node), Counter([node.state])) for node in group}
            where.update(made)
            columns.append(list(made.values()))
        else:
            columns.append(_sums(group, where))
    place = {box: number for number, column in enumerate(columns) for box in column}
    lines = dict.fromkeys(
        (where[parent], where[node.seq]) for node in nodes for parent in node.parents or () if parent in where
    )
    return columns, [(one, other) for one, other in lines if place[one] < place[other]]


def _sums(group: Sequence[engine.NodeRow], where: dict[int, Box]) -> list[Box]:
    """Return a box for each of the most frequent names, and one for the others."""
    sizes = Counter(map(_name, group))
    shown = sizes.most_common(MAX_NAMES if len(sizes) <= MAX_NAMES else MAX_NAMES - 1)
    made = {name: Box(f"{name} ({size:,})", Counter()) for name, size in shown}
    others = Box(_("{number} other names").format(number=count(len(sizes) - len(shown))), Counter())
    for node in group:
        box = where[node.seq] = made.get(_name(node), others)
        box.counts[node.state] += 1
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

"""The page of one workflow: its graph, and every job of it in a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse

from ..engine import NodeRow
from ..engine.flow.figures import every_node
from ..models import Workflow
from . import pages, reading
from .workflow_graph import MAX_BOXES, counts_of, draw, jobs_of, name_of

#: Jobs of one page of the list, and parents of a job that it names.
PAGE, MAX_PARENTS = 500, 5


class JobLine(NamedTuple):
    """A job of the workflow as the list shows it; ``more`` is how many parents are not named."""

    node: NodeRow
    name: str
    parents: list[tuple[int, str]]
    more: int


def workflow_page(request: HttpRequest, site: AdminSite, workflow: Workflow) -> HttpResponse:
    """Answer with the page of a workflow."""
    nodes = reading.read(every_node(workflow.pk))
    jobs = jobs_of(nodes)
    start = _start(request, len(nodes))
    running = workflow.ended_at is None
    context = {
        "workflow": workflow,
        "state": workflow.get_state_display(),
        "counts": counts_of(jobs),
        "graph": draw(jobs),
        "lines": _lines(nodes[start : start + PAGE], {node.seq: node for node in nodes}),
        "nodes": len(nodes),
        "from": start + 1,
        "to": min(start + PAGE, len(nodes)),
        "before": f"?from={max(start - PAGE, 0)}" if start else None,
        "next": f"?from={start + PAGE}" if start + PAGE < len(nodes) else None,
        "every": 0 if not running else 5 if len(nodes) <= MAX_BOXES else 30,
        "can_cancel": running and pages.allowed(request, "cancel_job"),
        "can_retry": workflow.failed and pages.allowed(request, "retry_job"),
    }
    crumbs = [pages.Crumb("Workflows", pages.url(site, "leasequeue_workflow_changelist"))]
    return pages.page(request, site, "workflow.html", context, title=f"Workflow {workflow}", crumbs=crumbs)


def _start(request: HttpRequest, count: int) -> int:
    """Return the place in the list at which the page begins."""
    given = request.GET.get("from", "")
    start = int(given) if given.isascii() and given.isdecimal() and len(given) < 10 else 0
    return start if start < count else 0


def _lines(nodes: Sequence[NodeRow], known: Mapping[int, NodeRow]) -> list[JobLine]:
    found = []
    for node in nodes:
        parents = node.parents or []
        named = [(seq, name_of(known[seq]) if seq in known else "job") for seq in parents[:MAX_PARENTS]]
        found.append(JobLine(node, name_of(node), named, len(parents) - len(named)))
    return found

"""Workflows in the admin: the list, the page of one with its graph, cancelling, retrying what has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Count, Min
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from .. import engine
from ..engine import NodeRow
from ..engine.dead.action import RETRY
from ..engine.dead.action import act as act_on_dead
from ..engine.flow.figures import every_node
from ..engine.limits import MAX_BATCH, MAX_SEQ, seq_of
from ..enums import MemberState, WorkflowState
from ..models import Workflow
from . import pages, reading
from .audit import record
from .pages import PageAdmin
from .workflow_graph import MAX_BOXES, counts_of, draw, jobs_of, name_of

#: Workflows of a page, and those that are looked at for it.
LIST_PAGE, MAX_LOOKED_AT = 50, 5_000
STATES = {str(label): int(value) for value, label in WorkflowState.choices}


class WorkflowPage(NamedTuple):
    """A page of workflows, how many were looked at for it, and the id below which the next one begins."""

    workflows: list[Workflow]
    looked_at: int
    next: int | None


def read_workflows(*, state: int | None = None, text: str | None = None, below: int = MAX_SEQ) -> WorkflowPage:
    """Read workflows of all projects, the newest first, by their state and a part of the name."""
    older = Workflow.objects.using(reading.alias()).filter(pk__lt=below).order_by("-pk")
    looked = older[:MAX_LOOKED_AT].aggregate(count=Count("pk"), lowest=Min("pk"))
    wanted = older.filter(pk__gte=looked["lowest"] or 0)
    if state is not None:
        wanted = wanted.filter(state=state)
    if text is not None:
        wanted = wanted.filter(name__icontains=text)
    found = list(wanted[: LIST_PAGE + 1])
    if len(found) > LIST_PAGE:
        return WorkflowPage(found[:LIST_PAGE], looked["count"], found[LIST_PAGE - 1].pk)
    return WorkflowPage(found, looked["count"], looked["lowest"] if looked["count"] == MAX_LOOKED_AT else None)


#: Jobs of one page of the list, and parents of a job that it names.
PAGE, MAX_PARENTS = 25, 5


class JobLine(NamedTuple):
    """A job of the workflow as the list shows it; ``more`` is how many parents are not named."""

    node: NodeRow
    name: str
    parents: list[tuple[int, str]]
    more: int


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


_LIST = "leasequeue_workflow_changelist"
#: What is done to a workflow, and the permission that it needs.
_ACTIONS = {"cancel": "cancel_job", "retry": "retry_job"}


@admin.register(Workflow)
class WorkflowAdmin(PageAdmin[Workflow]):
    """Workflows are made by code; here they are looked at, cancelled, and gone on with."""

    def get_urls(self) -> list[URLPattern]:
        return [
            path("", self.view(self.changelist), name=_LIST),
            path("<uuid:uid>/", self.view(self.one), name="leasequeue_workflow"),
            path("<uuid:uid>/act/", self.act_view(self.act), name="leasequeue_workflow_act"),
            # The name that Django's own log looks for.
            path("<int:pk>/change/", self.view(self.moved), name="leasequeue_workflow_change"),
        ]

    def changelist(self, request: HttpRequest) -> HttpResponse:
        pages.require(request, "view_workflow")
        state, name = request.GET.get("state", ""), request.GET.get("name", "").replace("\x00", "").strip()[:255]
        try:
            return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_workflow", UUID(name)))
        except ValueError:
            pass  # a name
        below = request.GET.get("below", "")
        start = seq_of(below)
        looked = read_workflows(state=STATES.get(state), text=name or None, below=MAX_SEQ if start is None else start)
        query = {key: value for key, value in (("state", state), ("name", name)) if value}
        context = {
            "looked": looked,
            "states": list(STATES),
            "state": state,
            "name": name,
            "filtered": state in STATES or bool(name),
            "first": f"?{urlencode(query)}" if start is not None else None,
            "next": None if looked.next is None else f"?{urlencode({**query, 'below': looked.next})}",
        }
        return pages.page(request, self.admin_site, "workflows.html", context, title="Workflows")

    def one(self, request: HttpRequest, uid: UUID) -> HttpResponse:
        pages.require(request, "view_workflow", "view_job")
        workflow = _find(uid)
        nodes = reading.read(every_node(workflow.pk))
        jobs = jobs_of(nodes)
        counts = counts_of(jobs)
        state = request.GET.get("state", "")
        state = state if state in dict(counts) else ""
        listed = [node for node in nodes if not state or node.state == state]
        start = _start(request, len(listed))
        query = {"state": state} if state else {}

        def page(at: int) -> str:
            return f"?{urlencode({**query, 'from': at})}"

        running = workflow.ended_at is None
        context = {
            "workflow": workflow,
            "state": workflow.get_state_display(),
            "counts": counts,
            "chosen": state,
            # The page of a large one is a screen: its jobs are folded until one asks for some.
            "folded": len(nodes) > PAGE and not state and "from" not in request.GET,
            "graph": draw(jobs),
            "lines": _lines(listed[start : start + PAGE], {node.seq: node for node in nodes}),
            "nodes": len(listed),
            "from": start + 1,
            "to": min(start + PAGE, len(listed)),
            "before": page(max(start - PAGE, 0)) if start else None,
            "next": page(start + PAGE) if start + PAGE < len(listed) else None,
            "every": 0 if not running else 5 if len(nodes) <= MAX_BOXES else 30,
            "can_cancel": running and pages.allowed(request, "cancel_job"),
            "can_retry": workflow.failed and pages.allowed(request, "retry_job"),
        }
        crumbs, title = [pages.Crumb("Workflows", pages.url(self.admin_site, _LIST))], f"Workflow {workflow}"
        return pages.page(request, self.admin_site, "workflow.html", context, title=title, crumbs=crumbs)

    def moved(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Lead from Django's log to the workflow."""
        pages.require(request, "view_workflow")
        workflow = reading.instance(Workflow, pk)
        if workflow is None:
            messages.warning(request, "This workflow is forgotten: its jobs ended more than a day ago.")
            return HttpResponseRedirect(pages.url(self.admin_site, _LIST))
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_workflow", workflow.uid))

    def act(self, request: HttpRequest, uid: UUID) -> HttpResponse:
        """Cancel a workflow or retry its dead letters: a POST with ``action``."""
        action = pages.action_of(request, _ACTIONS, "view_workflow", "view_job")
        workflow = _find(uid)
        if action == "cancel":
            _cancel(request, workflow)
        else:
            _retry(request, workflow)
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_workflow", uid))


def _find(uid: UUID) -> Workflow:
    workflow = Workflow.objects.using(reading.alias()).filter(uid=uid).first()
    if workflow is None:
        raise Http404(f"There is no workflow {uid}: it ended more than a day ago, or never was.")
    return workflow


def _cancel(request: HttpRequest, workflow: Workflow) -> None:
    with transaction.atomic(using=reading.alias()):
        removed = reading.run(engine.cancel_workflow(workflow.uid, project=workflow.project))
        if removed is not None:
            _record(request, "cancel_workflow", workflow, {"removed": removed})
    if removed is None:
        messages.error(request, "This workflow has ended already.")
    else:
        messages.success(request, f"The workflow {workflow} is cancelled. Jobs taken out: {removed:,}.")


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
    words = f"Ready again: {done:,} of the dead letters of {workflow}. Left alone, as they change just now: {left:,}."
    if not seqs:
        messages.error(request, "None of its jobs is a dead letter: what failed for good cannot be retried.")
    elif left:
        messages.warning(request, words)
    else:
        messages.success(request, f"Ready again: {done:,} of the dead letters of {workflow}. Then the rest goes on.")


def _record(
    request: HttpRequest, action: str, workflow: Workflow, counts: dict[str, int], seqs: list[int] | None = None
) -> None:
    detail = {"workflow": str(workflow.uid), "name": workflow.name}
    record(request, action, obj=workflow, project=workflow.project, seqs=seqs or (), counts=counts, detail=detail)

"""Workflows in the admin: the list, the page of one with its graph, cancelling, retrying what has failed."""

from __future__ import annotations

from uuid import UUID

from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from .. import engine
from ..engine.dead.action import RETRY
from ..engine.dead.action import act as act_on_dead
from ..engine.flow.figures import every_node
from ..engine.limits import MAX_BATCH
from ..enums import MemberState
from ..models import Workflow
from . import pages, reading
from .audit import record
from .base import PageAdmin
from .workflow_list import workflow_list
from .workflow_page import workflow_page

#: What is done to a workflow, and the permission that it needs.
_ACTIONS = {"cancel": "cancel_job", "retry": "retry_job"}


@admin.register(Workflow)
class WorkflowAdmin(PageAdmin[Workflow]):
    """Workflows are made by code; here they are looked at, cancelled, and gone on with."""

    def page_urls(self) -> list[URLPattern]:
        """The pages of workflows."""
        return [
            path("", self.view(self.changelist), name="leasequeue_workflow_changelist"),
            path("<uuid:uid>/", self.view(self.one), name="leasequeue_workflow"),
            path("<uuid:uid>/act/", self.act_view(self.act), name="leasequeue_workflow_act"),
            # The name that Django's own log looks for.
            path("<int:pk>/change/", self.view(self.moved), name="leasequeue_workflow_change"),
        ]

    def changelist(self, request: HttpRequest) -> HttpResponse:
        """The workflows, the newest first."""
        pages.require(request, "view_workflow")
        return workflow_list(request, self.admin_site)

    def one(self, request: HttpRequest, uid: UUID) -> HttpResponse:
        """One workflow and its jobs."""
        pages.require(request, "view_workflow", "view_job")
        return workflow_page(request, self.admin_site, _find(uid))

    def moved(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Lead from Django's log to the workflow."""
        pages.require(request, "view_workflow")
        workflow = reading.instance(Workflow, pk)
        if workflow is None:
            messages.warning(request, "This workflow is forgotten: its jobs ended more than a day ago.")
            return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_workflow_changelist"))
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
        removed = engine.run(engine.cancel_workflow(workflow.uid, project=workflow.project), using=reading.alias())
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
            acted = engine.run(act_on_dead(RETRY, batch), using=reading.alias())
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

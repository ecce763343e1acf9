"""The list of workflows, the newest first, and what is read of them."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from ..engine import WorkflowStatus
from ..engine.limits import MAX_SEQ, seq_of
from ..engine.operation import Steps, operation
from ..enums import WorkflowState
from . import pages, reading

#: Workflows of a page, and those that are looked at for it.
PAGE, MAX_LOOKED_AT = 50, 5_000
STATES = {str(label): int(value) for value, label in WorkflowState.choices}


class WorkflowLine(NamedTuple):
    """A workflow in the list."""

    uid: UUID
    project: str
    status: WorkflowStatus


class WorkflowPage(NamedTuple):
    """A page of workflows, how many were looked at for it, and the id below which the next one begins."""

    workflows: list[WorkflowLine]
    looked_at: int
    next: int | None


@operation
def read_workflows(*, state: int | None = None, text: str | None = None, below: int = MAX_SEQ) -> Steps[WorkflowPage]:
    """Read workflows of all projects, the newest first.

    Args:
        state: a ``WorkflowState``; ``None`` for any.
        text: a part of the name, in any case; ``None`` for any.
        below: the ``next`` of the page before.
    """
    params = {"below": below, "size": MAX_LOOKED_AT, "enough": PAGE + 1, "state": state, "text": text}
    rows = yield "admin/workflows", params
    (looked_at, lowest, *_), *_ = rows
    found = [
        WorkflowLine(uid, project, WorkflowStatus._make(status))
        for _, _, uid, project, *status in rows
        if uid is not None
    ]
    if len(found) > PAGE:
        return WorkflowPage(found[:PAGE], looked_at, found[PAGE - 1].status.id)
    return WorkflowPage(found, looked_at, lowest if looked_at == MAX_LOOKED_AT else None)


def workflow_list(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Answer with the list of workflows; the id of one in the field of names leads to it."""
    state, name = request.GET.get("state", ""), request.GET.get("name", "").replace("\x00", "").strip()[:255]
    try:
        return HttpResponseRedirect(pages.url(site, "leasequeue_workflow", UUID(name)))
    except ValueError:
        pass  # a name
    below = request.GET.get("below", "")
    start = seq_of(below)
    looked = reading.read(
        read_workflows(state=STATES.get(state), text=name or None, below=MAX_SEQ if start is None else start)
    )
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
    return pages.page(request, site, "workflows.html", context, title="Workflows")

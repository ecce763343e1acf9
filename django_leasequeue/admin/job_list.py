"""The list of jobs: one queue, one state, a page at a time by key; and the search by number or key."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from .. import engine
from ..engine.limits import MAX_SEQ
from ..engine.queues.stats import counts_by_id
from ..enums import JobState
from ..exceptions import LeaseQueueError
from ..models import Queue
from . import pages, reading
from .figures import capped

#: Jobs of one page.
PAGE = 50
_QUEUES = 200


def job_list(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Answer with the list, or with what a search found."""
    query = request.GET.get("q", "").strip()
    if query:
        return _search(request, site, query)
    queue = _queue(request.GET.get("queue", ""))
    state = request.GET.get("state", "")
    context: dict[str, Any] = {
        "queues": reading.read(reading.read_queues(None, "", None, _QUEUES)),
        "queue": queue,
        "states": [each.label for each in JobState],
        "q": "",
    }
    if queue is not None:
        context.update(_jobs(request, site, queue, state))
    return pages.page(request, site, "jobs.html", context, title="Jobs")


def _queue(text: str) -> Queue | None:
    if not text.isdecimal() or int(text) > MAX_SEQ:
        return None
    return Queue.objects.using(reading.alias()).filter(pk=int(text)).first()


def _jobs(request: HttpRequest, site: AdminSite, queue: Queue, state: str) -> dict[str, Any]:
    counts = reading.read(counts_by_id([queue.pk])).get(queue.pk)
    figures = [] if counts is None else [
        ("ready", capped(counts.ready)),
        ("delayed", capped(counts.delayed)),
        ("leased", capped(counts.in_flight)),
        ("dead", capped(counts.dead)),
        ("record", capped(counts.records)),
    ]  # fmt: skip
    if state not in {each.label for each in JobState}:
        state = next((name for name, count in figures if count != "0"), "record" if queue.type == "log" else "ready")
    try:
        page = reading.read(
            engine.list_jobs(
                queue.name, state, project=queue.project, after=request.GET.get("after"), size=PAGE, payload=False
            )
        )
    except LeaseQueueError as error:
        messages.error(request, str(error))
        page = engine.Page([], None)
    base = {"queue": queue.pk, "state": state}
    return {
        "state": state,
        "figures": [(name, count, f"?{urlencode({**base, 'state': name})}") for name, count in figures],
        "jobs": page.jobs,
        "first": f"?{urlencode(base)}" if request.GET.get("after") else None,
        "next": f"?{urlencode({**base, 'after': page.next})}" if page.next else None,
    }


def _search(request: HttpRequest, site: AdminSite, query: str) -> HttpResponse:
    number = int(query) if query.isdecimal() and int(query) <= MAX_SEQ else None
    found = reading.read(reading.find_jobs(number, query[:1_024].replace("\x00", "")))
    seq = found[0].seq if len(found) == 1 else None
    if not found and number is not None:
        events = reading.read_log(reading.read_events(number))
        seq = number if events else None
    if seq is not None:
        return HttpResponseRedirect(pages.url(site, "leasequeue_job_change", seq))
    context = {
        "queues": reading.read(reading.read_queues(None, "", None, _QUEUES)),
        "states": [each.label for each in JobState],
        "q": query,
        "found": found,
        "searched": True,
    }
    return pages.page(request, site, "jobs.html", context, title="Jobs")

"""The list of jobs: a queue's in one state by index, a search through all of them, and the jump to a number or key."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from .. import engine
from ..engine.codec import decode_cursor, encode_cursor
from ..engine.dead.filter import DeadFilter
from ..engine.dead.search import from_micros, micros
from ..engine.limits import seq_of
from ..engine.operation import Steps, operation
from ..engine.queues.stats import counts_by_id
from ..enums import JobState
from ..exceptions import InvalidOption, LeaseQueueError
from ..models import Queue
from . import job_search, pages, rates, reading
from .reading import capped

#: Jobs of one page.
PAGE = 50
#: Queues that the form offers, and the newest rows of the lease log that the tasks on offer are taken from.
_QUEUES, _TASK_ROWS = 1_000, 2_000

#: States whose figures the list shows, and the names of those.
_FIGURES = {"ready": "ready", "delayed": "delayed", "leased": "in_flight", "dead": "dead", "record": "records"}
#: The words of the list for them.
SLEEPING, WAITING = SUSPENDED = ("sleeping", "waiting for an event")
#: Steps that one page looks at.
LOOK = 500


class SuspendedJob(NamedTuple):
    """A job that sleeps or waits: since when, in which step, for which event (of which project), until when."""

    seq: int
    since: datetime
    step: str
    event: str | None
    of: str | None
    until: datetime | None
    suspended: bool
    queue_id: int | None
    project: str | None
    queue: str | None
    name: str | None
    key: str | None


@operation
def read_suspended(waits: bool, after: str | None) -> Steps[tuple[list[SuspendedJob], str | None]]:
    """Read a page of the jobs that sleep, the longest first, or that wait, by their events; and its cursor."""
    at, event, project, seq = decode_cursor(after, (int, str, str, int)) or (0, "", "", 0)
    place = {"at": from_micros(at), "event": event, "project": project, "seq": seq}
    found = [SuspendedJob._make(row) for row in (yield "admin/suspended", {**place, "waits": waits, "size": LOOK})]
    more = None
    if len(found) == LOOK:
        last = found[-1]
        more = encode_cursor(micros(last.since), last.event or "", last.of or "", last.seq)
    return [job for job in found if job.suspended], more


def _suspended_page(request: HttpRequest, queue: Queue | None, state: str) -> dict[str, Any]:
    """Return what the list shows of the jobs in one of these states, of a queue and a task if they are named."""
    jobs, after = reading.read(read_suspended(state == WAITING, request.GET.get("after")))
    task = request.GET.get("task", "").strip()
    base = {"queue": request.GET.get("queue", ""), "state": state, "task": task}
    listed = [job for job in jobs if (queue is None or job.queue_id == queue.pk) and (not task or job.name == task)]
    return {
        "state": state,
        "suspended": listed,
        "first": f"?{urlencode(base)}" if request.GET.get("after") else None,
        "next": f"?{urlencode({**base, 'after': after})}" if after else None,
    }


def job_list(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Answer with the list, or with what a search found."""
    # One field finds all: what is exactly the number or key of a job leads to it, anything else is searched for.
    words = request.GET.get("q", "").strip()
    if words and (jump := _jump(request, site, words)) is not None:
        return jump
    queue, unknown = _queue(request.GET.get("queue", "").strip())
    context: dict[str, Any] = {"queue": queue}
    may_search = pages.allowed(request, "view_payload")
    state = request.GET.get("state", "")
    if state in SUSPENDED and not unknown:
        try:
            context.update(_suspended_page(request, queue, state))
        except LeaseQueueError as error:
            messages.error(request, str(error))
        nothing = job_search.from_request({"task": request.GET.getlist("task")}, None, payloads=False)
        return _page(request, site, {**_form(request, nothing, queue), **context})
    try:
        if unknown:
            raise InvalidOption(f"There is no queue {unknown}.")
        given = dict(request.GET.lists())
        if words:
            if words.startswith("tags.") and "=" in words:
                given["payload"], words = [words, *given.get("payload", ())], ""
            quoted = len(words) > 2 and words[0] == words[-1] == '"'
            given["text"] = [words[1:-1] if quoted else words] if words else []
        wanted = job_search.from_request(given, None if queue is None else queue.pk, payloads=may_search)
        if wanted.rest.payload and not may_search:
            raise InvalidOption("You may not see payloads, so you cannot search in them.")
    except InvalidOption as error:
        messages.error(request, str(error))
        wanted = job_search.JobFilter(DeadFilter(), None if queue is None else queue.pk)
    live = {each.label for each in JobState}
    if queue is not None and wanted.empty and (not state or state in live):
        context.update(_by_index(request, queue, state))
    elif request.GET:
        context.update(_search(request, wanted))
        found = [(job.seq, job.queue, job.task) for job in context["looked"].jobs]
        context["arguments"] = job_search.arguments(found, values=may_search)
    if queue is not None and context.get("jobs"):
        found = [(job.seq, queue.name, job.name) for job in context["jobs"]]
        context["arguments"] = job_search.arguments(found, values=may_search)
    return _page(request, site, {**_form(request, wanted, queue), **context})


def _page(request: HttpRequest, site: AdminSite, context: dict[str, Any]) -> HttpResponse:
    return pages.page(request, site, "jobs.html", context, title="Jobs")


def _queue(text: str) -> tuple[Queue | None, str]:
    """Return the queue that a text names (``project/name``, or its number), and the text if there is none."""
    if not text:
        return None, ""
    known = Queue.objects.using(reading.alias())
    text = text.replace("\x00", "")[:1_000]
    project, _, name = text.rpartition("/")
    found = known.filter(project=project, name=name).first()
    if found is None and (number := seq_of(text)) is not None:
        found = known.filter(pk=number).first()
    return found, "" if found else text


def _form(request: HttpRequest, wanted: job_search.JobFilter, queue: Queue | None) -> dict[str, Any]:
    tasks = reading.read_log(rates.read_tasks(seconds=86_400, size=_TASK_ROWS)).tasks
    given = {name: request.GET.get(name, "") for name in ("since", "until", "payload")}
    return {
        "q": request.GET.get("q", "") or wanted.rest.text or "",
        "queues": reading.read_queues(_QUEUES),
        "queue_label": "" if queue is None else f"{queue.project}/{queue.name}" if queue.project else queue.name,
        "tasks": [task.name for task in tasks if task.name],
        "task": wanted.rest.task or "",
        "states": [*job_search.STATES, *SUSPENDED],
        "state": request.GET.get("state", ""),
        "given": given,
        "rare": bool(given["until"] or given["payload"]),
        "may_search": pages.allowed(request, "view_payload"),
        "ranges": [(name, _with(request, since=since), given["since"] == since) for name, since in rates.SINCE.items()],
    }


def _with(request: HttpRequest, **changes: str) -> str:
    """Return the address of this search with some fields changed, from its first page on."""
    values = {name: value for name, value in request.GET.items() if name != "below"}
    return f"?{urlencode({'state': 'any', **values, **changes})}"


def _search(request: HttpRequest, wanted: job_search.JobFilter) -> dict[str, Any]:
    below = seq_of(request.GET.get("below", ""))
    looked = reading.read(job_search.find(wanted, below=below, size=PAGE))
    return {
        "looked": looked,
        "first": f"?{wanted.query()}" if below is not None else None,
        "next": None if looked.next is None else f"?{wanted.query(below=looked.next)}",
    }


def _by_index(request: HttpRequest, queue: Queue, state: str) -> dict[str, Any]:
    counts = reading.read(counts_by_id([queue.pk])).get(queue.pk)
    figures = (
        [] if counts is None else [(name, capped(getattr(counts, of), counts.cap)) for name, of in _FIGURES.items()]
    )
    if not state:
        state = next((name for name, count in figures if count != "0"), "record" if queue.type == "log" else "ready")
    try:
        after, project = request.GET.get("after"), queue.project
        listed = engine.list_jobs(queue.name, state, project=project, after=after, size=PAGE, payload=False)
        page = reading.read(listed)
    except LeaseQueueError as error:
        messages.error(request, str(error))
        page = engine.Page([], None)
    base = {"queue": queue.pk, "state": state}
    return {
        "state": state,
        "figures": [
            *((name, count, f"?{urlencode({**base, 'state': name})}") for name, count in figures),
            ("any, finished ones too", "", f"?{urlencode({**base, 'state': 'any'})}"),
        ],
        "jobs": page.jobs,
        "first": f"?{urlencode(base)}" if request.GET.get("after") else None,
        "next": f"?{urlencode({**base, 'after': page.next})}" if page.next else None,
    }


def _jump(request: HttpRequest, site: AdminSite, query: str) -> HttpResponse | None:
    """Lead to the job with this number or key, or list the jobs with this key; ``None`` if there is none."""
    number = seq_of(query)
    key = query[:1_024].replace("\x00", "")
    found = reading.find_jobs(key) if key else []
    if number is not None and number not in {job.seq for job in found}:
        seen = reading.read_job(number)
        if not found and (seen is not None or reading.read_events(number)):
            return HttpResponseRedirect(pages.url(site, "leasequeue_job_change", number))
        found += [seen.job] if seen is not None else []
    if len(found) == 1:
        return HttpResponseRedirect(pages.url(site, "leasequeue_job_change", found[0].seq))
    if not found:
        return None
    named = [(job.seq, job.queue.name, job.task) for job in found]
    lines = job_search.arguments(named, values=pages.allowed(request, "view_payload"))
    form = _form(request, job_search.JobFilter(DeadFilter()), None)
    return _page(request, site, {**form, "found": found, "arguments": lines})

"""The list of jobs: a queue's in one state by index, a search through all of them, and the jump to a number or key.

No index answers a search over all queues and states: it reads jobs one after the other, the newest first, a bounded
number per request. An answer says how far it has read; ``search.js`` asks for the next one until a page is full.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode

from django.contrib import messages
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from .. import engine
from ..engine import arrays, codec
from ..engine.dead.filter import DeadFilter, from_values, unknown_name
from ..engine.dead.redaction import readable, redact
from ..engine.dead.search import from_micros, micros
from ..engine.limits import MAX_SEQ, seq_of
from ..engine.operation import Statements, operation
from ..engine.queues.stats import counts_by_id
from ..enums import JobState, ResultState
from ..exceptions import InvalidOption, LeaseQueueError
from ..models import Job, Queue, StoredJob
from ..models.base import AsWritten
from ..tasks.arguments import shown
from ..templatetags.leasequeue_admin import capped
from ..words import ENDED
from . import filters, pages, rates, reading
from .filters import called, openly

#: Jobs of one page.
PAGE = 50
#: States whose figures the list shows, and the names of those.
_FIGURES = {"ready": "ready", "delayed": "delayed", "leased": "in_flight", "dead": "dead", "record": "records"}
#: The list's words for states of suspended jobs.
SLEEPING, WAITING = SUSPENDED = (gettext_noop("sleeping"), gettext_noop("waiting for an event"))
#: Steps that one page looks at.
LOOK = 500
#: Jobs that one page looks at, how many at a time, and the seconds after which it stops.
MAX_LOOKED, CHUNK, PATIENCE = 50_000, 1_000, 0.4
#: Bytes of a job's data up to which a list shows the arguments, and characters that it shows.
_MAX_DATA, _MAX_SHOWN = 4_000, 120
#: Time by which a job may have been made earlier than one with a lower number: its transaction was long.
_SLACK = timedelta(minutes=10)
#: States by the words of an address; of results + ENDED.
STATES = {state.label: int(state) for state in JobState} | {state.label: int(state) + ENDED for state in ResultState}
#: States whose jobs are listed over all queues, and what they are to ``Job``: held ones count as delayed.
LIVE = {"ready": ("ready",), "delayed": ("delayed", "waiting"), "leased": ("leased",), "dead": ("dead",)}
_FIELDS = ("task", "tag", "since", "until", "text", "payload")
#: What the address of the list may say.
NAMES = ("q", "queue", "state", "worker", *_FIELDS, "below", "after")
#: What ``admin/suspended`` returns: ``event`` belongs to the project ``of``.
_COLUMNS = ("seq", "since", "step", "event", "of", "until", "suspended", "queue_id", "project", "queue", "name", "key")


@operation
def read_suspended(waits: bool, after: str | None) -> Statements[tuple[list[dict[str, Any]], str | None]]:
    """Read a page of the jobs that sleep, the longest first, or that wait, by their events; and its cursor."""
    at, event, project, seq = codec.decode_cursor(after, (int, str, str, int)) or (0, "", "", 0)
    place = {"at": from_micros(at), "event": event, "project": project, "seq": seq}
    rows = yield "admin/suspended", {**place, "waits": waits, "size": LOOK}
    found = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    more = None
    if len(found) == LOOK:
        last = found[-1]
        more = codec.encode_cursor(micros(last["since"]), last["event"] or "", last["of"] or "", last["seq"])
    return [job for job in found if job["suspended"]], more


def _suspended_page(request: HttpRequest, queue: Queue | None, state: str) -> dict[str, Any]:
    """Return what the list shows of the jobs in one of these states, of a queue and a task if they are named."""
    jobs, after = reading.read(read_suspended(state == WAITING, request.GET.get("after")))
    task = request.GET.get("task", "").strip()
    base = {"queue": request.GET.get("queue", ""), "state": state, "task": task}
    if queue is not None:
        jobs = [job for job in jobs if job["queue_id"] == queue.pk]
    return {
        "state": state,
        "suspended": [job for job in jobs if not task or job["name"] == task],
        "first": f"?{urlencode(base)}" if request.GET.get("after") else None,
        "next": f"?{urlencode({**base, 'after': after})}" if after else None,
    }


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter of jobs; ``None`` (or empty) means any. ``queue`` is an id, ``rest`` holds all but the state.

    ``payloads``: whether ``text`` is also looked for in data and meta.
    """

    rest: DeadFilter
    queue: int | None = None
    state: str | None = None
    payloads: bool = False

    def query(self, **more: Any) -> str:
        """Return the filter as a query string, with more names behind it."""
        pairs = {"queue": self.queue or "", "state": self.state or "any", **more}
        return "&".join(part for part in (self.rest.query(), urlencode(pairs)) if part)


class JobHit(NamedTuple):
    """A job that a filter wants. ``finished_at``: when it was finished, or died."""

    seq: int
    state_number: int
    project: str
    queue: str
    queue_id: int
    key: str | None
    task: str | None
    enqueued_at: datetime
    finished_at: datetime | None
    error_type: str | None
    error: str | None

    @property
    def state(self) -> str:
        number = self.state_number
        return str(JobState(number).label if number < ENDED else ResultState(number - ENDED).label)


class JobHits(NamedTuple):
    """The jobs that a look found, how many it looked at, back to when, and the start of the next (``None``: end)."""

    jobs: list[JobHit]
    looked_at: int
    oldest: datetime | None
    next: int | None


def from_request(values: Mapping[str, list[str]], queue: int | None, *, payloads: bool) -> JobFilter:
    """Return the filter that an address's values make; raise ``InvalidOption`` where one is not allowed."""
    rest = from_values({name: values[name] for name in _FIELDS if name in values})
    state = (values.get("state") or [""])[-1] or "any"
    if state != "any" and state not in STATES:
        raise InvalidOption(
            _("state must be one of any, {states}; it is {given!r}.").format(states=", ".join(STATES), given=state[:40])
        )
    return JobFilter(rest, queue, None if state == "any" else state, payloads)


def arguments(jobs: Iterable[tuple[int, str, str | None]], *, values: bool) -> dict[int, str]:
    """Return the data (of a task the arguments) of jobs (number, queue, task) as one line each, with secrets hidden."""
    names = {seq: (queue, task) for seq, queue, task in jobs}
    found = StoredJob.objects.using(reading.alias()).filter(pk__in=names)
    texts = found.annotate(text=Left(AsWritten("data"), _MAX_DATA + 1)).values_list("pk", "text")
    lines = {}
    for seq, text in texts:
        if text and len(text) <= _MAX_DATA:
            queue, task = names[seq]
            line = _line(redact(readable(text), kind="data", queue=queue, task=task, values=values))
            lines[seq] = line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}…"
        elif text:
            lines[seq] = "…"
    return lines


def _line(data: Any) -> str:
    if not (isinstance(data, dict) and isinstance(data.get("args"), list) and isinstance(data.get("kwargs"), dict)):
        return codec.dumps(data)
    args, kwargs = shown(data["args"]), shown(data["kwargs"])
    return ", ".join([*map(codec.dumps, args), *(f"{k}={codec.dumps(v)}" for k, v in kwargs.items())])


@operation
def find(wanted: JobFilter, *, below: int | None = None, only: Sequence[int] | None = None) -> Statements[JobHits]:
    """Search for jobs, the newest first; ``below`` is ``next`` of the search before.

    ``only``: those that an index found; it looks at no others.
    """
    since, until = wanted.rest.since, wanted.rest.until
    if below is None:
        ((below,),) = [(MAX_SEQ,)] if until is None else (yield "admin/job_after", {"at": until + _SLACK})
    params = {
        **wanted.rest.matching(),
        "payloads": wanted.payloads,
        "called": called(wanted.rest.text),
        "queue": wanted.queue,
        "states": None if wanted.state is None else arrays.integers([STATES[wanted.state]]),
        "since": since,
        "until": until,
        "only": None if only is None else arrays.integers(seq for seq in only if below is None or seq < below),
    }
    end = time.monotonic() + PATIENCE
    jobs: list[JobHit] = []
    looked, oldest = 0, None
    while True:
        enough = PAGE - len(jobs)
        rows = yield "admin/walk_jobs", {**params, "below": below, "size": CHUNK, "enough": enough}
        count, low, first, newest = rows[0][:4]
        found = [(place, JobHit._make(job)) for _, _, _, _, place, *job in rows if place is not None]
        jobs += [job for _, job in found if not (wanted.rest.payload and wanted.rest.hidden(job.task))]
        if len(found) == enough:
            place, last = found[-1]
            return JobHits(jobs, looked + place, last.enqueued_at, last.seq)
        looked, oldest = looked + count, first or oldest
        if only is not None or count < CHUNK or (since is not None and newest < since - _SLACK):
            return JobHits(jobs, looked, oldest, None)
        below = low
        if looked >= MAX_LOOKED or time.monotonic() >= end:
            return JobHits(jobs, looked, oldest, below)


def job_list(admin: pages.PageAdmin[Job], request: HttpRequest) -> HttpResponse:
    """Answer with the list, or with what a search found."""
    # One field finds all: what is exactly the number or key of a job leads to it, anything else is searched for.
    words = request.GET.get("q", "").strip()
    if words and (jump := _jump(admin, request, words)) is not None:
        return jump
    queue, unknown = _queue(request.GET.get("queue", "").strip())
    context: dict[str, Any] = {"queue": queue}
    may_search = pages.allowed(request, "view_payload")
    state = request.GET.get("state", "")
    if state in SUSPENDED and not unknown:
        wanted = JobFilter(DeadFilter())
        try:
            wanted = from_request({"task": request.GET.getlist("task")}, None, payloads=False)
            context.update(_suspended_page(request, queue, state))
        except LeaseQueueError as error:
            messages.error(request, str(error))
        return _page(admin, request, wanted, context)
    try:
        if unknown:
            raise InvalidOption(_("There is no queue {queue}.").format(queue=unknown))
        given = dict(request.GET.lists())
        if words:
            if words.startswith("tags.") and "=" in words:
                given["payload"], words = [words, *given.get("payload", ())], ""
            quoted = len(words) > 2 and words[0] == words[-1] == '"'
            given["text"] = [words[1:-1] if quoted else words] if words else []
        wanted = from_request(given, None if queue is None else queue.pk, payloads=may_search)
        if wanted.rest.payload and not may_search:
            raise InvalidOption(_("You may not see payloads, so you cannot search in them."))
    except InvalidOption as error:
        context |= {"error": str(error), "actions": ()}
        return _page(admin, request, JobFilter(DeadFilter()), context, status=400)
    listed: list[tuple[int, str, str | None]] = []
    worker = request.GET.get("worker", "").replace("\x00", "").strip()[:512]
    if not worker and queue is not None and wanted.rest.empty and (not state or state in JobState.labels):
        context.update(_by_index(request, queue, state))
        listed = [(job.seq, queue.name, job.name) for job in context["jobs"]]
    elif worker or (state in LIVE and queue is None and wanted.rest.empty and "below" not in request.GET):
        state = "leased" if worker else state
        found = context["found"] = reading.some_jobs(LIVE[state], PAGE, worker)
        context |= {"state": state, "unordered": len(found) == PAGE}
        listed = [(job.seq, job.queue.name, job.task) for job in found]
    elif request.GET:
        below = seq_of(request.GET.get("below", ""))
        only = reading.indexed(wanted.rest.payload)
        looked = reading.read(find(wanted, below=below, only=only))
        sought = wanted.rest.text if wanted.payloads else None
        context["looked"] = looked = looked._replace(jobs=openly(looked.jobs, sought))
        if only is None and (slow := [test for test in wanted.rest.payload if test.equal]):
            context["index"] = ".".join((slow[0].root, *slow[0].place))
        context["first"] = None if below is None else f"?{wanted.query()}"
        context["next"] = None if looked.next is None else f"?{wanted.query(below=looked.next)}"
        listed = [(job.seq, job.queue, job.task) for job in looked.jobs]
    context["arguments"] = arguments(listed, values=may_search)
    return _page(admin, request, wanted, context)


def _page(
    admin: pages.PageAdmin[Job], request: HttpRequest, wanted: JobFilter, context: dict[str, Any], status: int = 200
) -> HttpResponse:
    content = {**_form(request, wanted), "actions": _actions(admin, request), **context}
    return admin.page(request, "jobs.html", content, title=_("Jobs"), status=status)


def _queue(text: str) -> tuple[Queue | None, str]:
    """Return the queue that a text names (``project/name``, or its number), and the text if there is none."""
    if not text:
        return None, ""
    known = Queue.objects.using(reading.alias())
    text = text.replace("\x00", "")[:1_000]
    project, _slash, name = text.rpartition("/")
    found = known.filter(project=project, name=name).first()
    if found is None and (number := seq_of(text)) is not None:
        found = known.filter(pk=number).first()
    return found, "" if found else text


def checked_query(request: HttpRequest, query: str) -> tuple[str, str]:
    """Return a filter of jobs as it is saved, and what is wrong with it."""
    values = parse_qs(query[:8_000], max_num_fields=200)
    kept = {name: values[name] for name in NAMES if name in values and name not in ("below", "after")}
    try:
        from_request({name: found for name, found in kept.items() if name != "state"}, None, payloads=False)
    except InvalidOption as error:
        return "", str(error)
    return urlencode(kept, doseq=True), unknown_name(values, NAMES) or (
        "" if kept else _("There is no filter to save.")
    )


def _actions(admin: pages.PageAdmin[Job], request: HttpRequest) -> list[tuple[str, str, str, str]]:
    """Return what this user may do with selected jobs: action, label, address, look of the button."""
    act, act_on_dead = (admin.url_or_none(f"leasequeue_{name}") for name in ("jobs_act", "deadletters_act"))
    offered = (
        (act, "cancel", _("Cancel"), "cancel_job", "danger"),
        (act, "run", _("Run now"), "change_job", ""),
        (act, "release", _("Release"), "release_job", "plain"),
        (act_on_dead, "retry", _("Retry the dead"), "retry_job", ""),
        (act_on_dead, "redrive", _("Redrive the dead…"), "redrive_job", "plain"),
        (act_on_dead, "discard", _("Discard the dead…"), "discard_job", "danger"),
    )
    return [
        (name, label, url, look)
        for url, name, label, permission, look in offered
        if url and pages.allowed(request, permission)
    ]


def _form(request: HttpRequest, wanted: JobFilter) -> dict[str, Any]:
    given = {name: request.GET.get(name, "") for name in ("since", "until", "payload", "tag", "worker")}
    tasks, tags = reading.offered()
    kept = {"state": "any", **request.GET.dict()}
    kept.pop("below", None)  # a changed search begins anew
    return {
        "q": request.GET.get("q", "") or wanted.rest.text or "",
        "queues": reading.queue_names(),
        "tasks": tasks,
        "task": wanted.rest.task or "",
        "saved": filters.saved(request, "jobs"),
        "filter_query": "" if "below" in request.GET or "after" in request.GET else request.GET.urlencode(),
        "tags": tags,
        "workers": [worker.node for worker in reading.read_workers()],
        "states": [*STATES, *SUSPENDED],
        "state": request.GET.get("state", ""),
        "given": given,
        "ranges": [
            (_(name), f"?{urlencode({**kept, 'since': since})}", given["since"] == since)
            for name, since in rates.SINCE.items()
        ],
    }


def _by_index(request: HttpRequest, queue: Queue, state: str) -> dict[str, Any]:
    counts = reading.read(counts_by_id([queue.pk])).get(queue.pk)
    figures = [(name, capped(getattr(counts, of), counts.cap)) for name, of in _FIGURES.items()] if counts else []
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
            (_("any, also ended"), "", f"?{urlencode({**base, 'state': 'any'})}"),
        ],
        "jobs": page.jobs,
        "first": f"?{urlencode(base)}" if request.GET.get("after") else None,
        "next": f"?{urlencode({**base, 'after': page.next})}" if page.next else None,
    }


def _jump(admin: pages.PageAdmin[Job], request: HttpRequest, query: str) -> HttpResponse | None:
    """Lead to the job with this number or key, or list the jobs with this key; ``None`` if there is none."""
    number = seq_of(query)
    key = query[:1_024].replace("\x00", "")
    found = reading.find_jobs(key) if key else []
    if number is not None and number not in {job.seq for job in found}:
        seen = reading.read_job(number)
        if not found and (seen is not None or reading.read_events(number)):
            return admin.redirect("leasequeue_job_change", number)
        found += [seen.job] if seen is not None else []
    if len(found) == 1:
        return admin.redirect("leasequeue_job_change", found[0].seq)
    if not found:
        return None
    named = [(job.seq, job.queue.name, job.task) for job in found]
    lines = arguments(named, values=pages.allowed(request, "view_payload"))
    return _page(admin, request, JobFilter(DeadFilter()), {"found": found, "arguments": lines})

"""Jobs in the admin: the page of one with its attempts, leases, payload and result, and what its buttons do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from .. import engine
from ..engine import clock, codec, metadata
from ..engine import payloads as large
from ..engine.dead.redaction import HIDDEN, readable, redact
from ..engine.jobs.steps import RESERVED, emit, rouse_job
from ..engine.limits import MAX_BATCH, MAX_SEQ, seq_of
from ..engine.operation import Statements, operation
from ..enums import EventKind
from ..exceptions import LeaseQueueError
from ..models import Job, JobEvent, Worker
from ..tasks.results import new_end
from ..templatetags.leasequeue_admin import count
from . import audit, history, pages, reading
from .filters import change_saved
from .job_list import NAMES, SUSPENDED, checked_query, job_list

_ACTIONS = {
    "cancel": "cancel_job",
    "release": "release_job",
    "run": "change_job",
    "copy": "add_job",
    "wake": "change_job",
    "emit": "emit_event",
}
#: What is done to many jobs, by the queryset's methods, and the sentence for it.
_MANY = {"cancel": "cancel", "release": "release", "run": "run_now"}
_ACTED = {
    "cancel": gettext_lazy("Cancelled: {done} of {selected} jobs."),
    "release": gettext_lazy("Released: {done} of {selected} jobs."),
    "run": gettext_lazy("Ready now: {done} of {selected} jobs."),
}
#: The state that they leave a job in.
_AFTER = {"cancel": "cancelled", "release": "ready", "run": "ready", "wake": "ready"}
#: Values that the tree of a JSON value shows, and characters of one text.
MAX_VALUES, MAX_TEXT = 2_000, 4_000
#: Deeper levels are closed at first; below the last one only the JSON text is shown.
_OPEN, _DEEPEST = 3, 40


@admin.register(Job)
class JobAdmin(pages.PageAdmin[Job]):
    """Jobs are looked at, not edited: what changes them is the engine, by the buttons of the page."""

    def get_urls(self) -> list[URLPattern]:
        saving = partial(change_saved, self, page="jobs", check=checked_query)
        listed = self.view(partial(job_list, self), "view_job", takes=NAMES)
        return [
            path("", listed, name="leasequeue_job_changelist"),
            path("<int:seq>/change/", self.view(self.change, "view_job"), name="leasequeue_job_change"),
            path("filters/", self.act_view(saving), name="leasequeue_job_filters"),
            path("act/", self.act_view(self.act_on_many), name="leasequeue_jobs_act"),
            path("<int:seq>/act/", self.act_view(self.act), name="leasequeue_job_act"),
        ]

    def change(self, request: HttpRequest, seq: int) -> HttpResponse:
        job = reading.read_job(seq)
        events = reading.read_events(seq, job)
        if job is None and not events:
            raise Http404(f"There is no job {seq}, and nothing is remembered of it.")
        nodes = sorted({event.node for event in events if event.node})
        workers = reading.read_workers(nodes) if nodes else []
        member = reading.read(engine.member(seq)) if job is not None else None
        values = pages.allowed(request, "view_payload")
        steps = reading.read_steps(seq) if job is not None else []
        suspended = [step for step in steps if step.part.size is None] if job and job.state == "delayed" else []
        state = job.state if job else events[-1].get_kind_display()
        if suspended:
            state = SUSPENDED[any(step.event for step in suspended)]
        running = job is not None and job.live
        dead = job is not None and job.live and job.dead_letter is not None
        hosts = {worker.node: worker.host for worker in workers}
        context = {
            "seen": job,
            "job": job and job.job,
            "seq": seq,
            "state": state,
            "task": job.job.task if job else events[-1].name,
            "member": member,
            "workflow_url": self.url_or_none("leasequeue_workflow", member.workflow) if member else None,
            "attempts": history.attempts_of(events, job.errors if job else [], hosts)[::-1],
            "drawing": history.draw(events, clock.now(), open_end=running),
            "lines": history.table_of(events)[::-1],
            "capped": len(events) == reading.MAX_EVENTS,
            "parts": _parts(job, values) if job else [],
            "steps": [(step, _shown(job, step.part, "result", values)) for step in steps] if job else [],
            "most_steps": reading.MAX_STEPS,
            "suspended": suspended,
            "sleeps": all(step.event is None for step in suspended),
            "events": [each.event for each in suspended if each.event and not each.event.startswith(RESERVED)],
            "links": self._links(request, job, events, workers),
            "act_url": self.url_or_none("leasequeue_deadletters_act") if dead else None,
            "edit_url": self.url_or_none("leasequeue_deadletters_edit", seq) if dead else None,
            "every": 5 if running else 0,
        }
        crumbs = [(_("Jobs"), "leasequeue_job_changelist")]
        return self.page(request, "job.html", context, title=_("Job {job}").format(job=seq), crumbs=crumbs)

    def _links(
        self, request: HttpRequest, job: reading.SeenJob | None, events: Sequence[JobEvent], workers: list[Worker]
    ) -> list[tuple[str, str, str]]:
        links = []
        if job is not None and job.failure.fingerprint:
            about = {"fingerprint": job.failure.fingerprint, "queue": job.queue.name, "project": job.queue.project}
            if group := self.url_or_none("leasequeue_deadletters_list", **about):
                links.append((_("Group"), _("dead letters like this ({fingerprint})").format(**about), group))
        if job is not None and (node := job.job.worker) and pages.allowed(request, "view_worker"):
            known = any(worker.node == node for worker in workers)
            address = self.url("leasequeue_worker_changelist", node=node)
            links.append((_("Worker"), node if known else _("{worker} (gone)").format(worker=node), address))
        if job is not None and (source := job.stored.source_seq) is not None:
            queue = job.source.name if job.source else _("a queue that is gone")
            where = _("job {job} of {queue}").format(job=source, queue=queue)
            links.append((_("Came from"), where, self.url("leasequeue_job_change", source)))
        for event in events:
            detail = event.detail or {}
            if detail.get("to_seq") is not None:
                what = _("Redriven to") if event.kind == EventKind.REDRIVEN else _("Dead letter")
                text = _("job {job} of {queue}").format(job=detail["to_seq"], queue=detail.get("to"))
                links.append((what, text, self.url("leasequeue_job_change", detail["to_seq"])))
        return links

    def act(self, request: HttpRequest, seq: int) -> HttpResponse:
        """Do something with one job: a POST with ``action``, for a release also ``claim``, the lease that is meant."""
        action = pages.action_of(request, _ACTIONS, "view_job")
        if seq > MAX_SEQ:
            raise Http404
        job = reading.read_job(seq)
        to = seq
        if job is None or not (job.live or action == "copy"):
            messages.error(request, _("Job {job} is not there any more.").format(job=seq))
        else:
            try:
                with transaction.atomic(using=reading.alias()):
                    done, text, *made = getattr(self, f"_{action}")(request, job)
                    to = made[0] if made else seq
                    if done:
                        more: dict[str, Any] = {}
                        if action == "emit":
                            more = {"event": request.POST.get("event", "")}
                        elif action in _AFTER:
                            more = {"changed": {"state": [job.state, _AFTER[action]]}}
                        detail = {"state": job.state, "node": job.job.worker, "claim": job.job.claim, **more}
                        place = {"project": job.queue.project, "queue": job.queue.name}
                        audit.record(
                            request, action, obj=Job(seq=seq), **place, seqs=[seq], counts={"done": 1}, detail=detail
                        )
            except LeaseQueueError as error:
                done, text = False, str(error)
            messages.add_message(request, messages.SUCCESS if done else messages.ERROR, text)
        return self.redirect("leasequeue_job_change", to)

    def act_on_many(self, request: HttpRequest) -> HttpResponse:
        """Cancel, release or run the selected jobs of a list: a POST with ``action`` and ``seq``."""
        action = pages.action_of(request, {name: _ACTIONS[name] for name in _MANY}, "view_job")
        seqs = [seq for text in request.POST.getlist("seq")[: MAX_BATCH + 1] if (seq := seq_of(text)) is not None]
        if not 0 < len(seqs) <= MAX_BATCH:
            messages.error(request, _("Select 1 to {most} jobs.").format(most=count(MAX_BATCH)))
        else:
            with transaction.atomic(using=reading.alias()):
                jobs = Job.objects.using(reading.alias()).filter(pk__in=seqs)
                done = getattr(jobs, _MANY[action])()
                if done:
                    audit.record(request, action, seqs=seqs, counts={"done": done, "selected": len(seqs)})
            text = _ACTED[action].format(done=count(done), selected=count(len(seqs)))
            if done < len(seqs):
                text += " " + _("The others were in another state.")
            say = messages.success if done else messages.error
            say(request, text)
        return HttpResponseRedirect(self.back(request))

    def _copy(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str] | tuple[bool, str, int]:
        made = reading.run(copy_job(job.seq, f"admin:{request.user.get_username()}"))
        if made is None:
            return False, _("{job} was not copied: nothing is left of it.").format(job=describe(job))
        return True, _("This is a copy of job {job}.").format(job=job.seq), made

    def _run(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str]:
        if Job.objects.using(reading.alias()).filter(pk=job.seq).run_now():
            return True, _("{job} is ready now.").format(job=describe(job))
        return False, _("{job} is not delayed any more.").format(job=describe(job))

    def _wake(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str]:
        over = reading.run(rouse_job(job.seq))
        if over:
            steps = ", ".join(name for name, _step in over)
            return True, _("{job} goes on: {steps} is over.").format(job=describe(job), steps=steps)
        return False, _("{job} neither sleeps nor waits any more.").format(job=describe(job))

    def _emit(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str]:
        event, text = request.POST.get("event", ""), request.POST.get("payload", "").strip()
        try:
            payload = None if not text else codec.loads(text)
        except ValueError as error:
            return False, _("The payload of the event is not JSON: {error}.").format(error=error)
        if reading.run(emit(event, payload, project=job.queue.project)):
            return True, _("The event {event} was emitted: jobs that wait for it go on.").format(event=event)
        return False, _("The event {event} had been emitted before: its first payload stays.").format(event=event)

    def _cancel(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str]:
        gone = reading.run(engine.cancel(job.queue.name, seqs=[job.seq], project=job.queue.project))
        if gone:
            return True, _("{job} was cancelled.").format(job=describe(job))
        return False, _("{job} was not cancelled: it has started, or it has ended.").format(job=describe(job))

    def _release(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str]:
        claim = request.POST.get("claim")
        node = job.job.worker
        if job.state != "leased" or node is None or claim != str(job.job.claim):
            return False, _("{job} was not released: the lease that you saw has ended.").format(job=describe(job))
        asked = engine.Release(job.seq, job.job.claim, delay_ms=0)
        settled = reading.run(engine.release([asked], node, project=job.queue.project))
        if job.seq in settled.released:
            words, state = _("{job} was taken from {worker} and is {state}."), _(settled.released[job.seq].state)
            return True, words.format(job=describe(job), worker=node, state=state)
        why = _(settled.outcomes[job.seq].value.replace("_", " "))
        return False, _("{job} was not released: {why}.").format(job=describe(job), why=why)


def describe(job: reading.SeenJob) -> str:
    """Return a job in a few words for messages."""
    words = _("Job {job} ({task})") if job.job.task else _("Job {job}")
    return words.format(job=job.seq, task=job.job.task)


def _parts(job: reading.SeenJob, values: bool) -> list[tuple[str, SafeString]]:
    """Return the label of each value, and its tree or how large it is."""
    found = [(_(part.label), _shown(job, part, part.label, values)) for part in job.parts if part.size is not None]
    for part in job.parts:
        if part.body is not None:
            label = _("result body") if part.label == "result" else _("body")
            found.append((label, format_html("<p>{}</p>", _("binary, {number} bytes").format(number=count(part.body)))))
    return found


def _shown(job: reading.SeenJob, part: reading.Part, kind: str, values: bool) -> SafeString:
    if part.text is None:
        words = _("{size} of JSON: too long to be shown here.")
        text = "" if part.size is None else words.format(size=filesizeformat(part.size))
        return format_html("<p>{}</p>", text)
    value = redact(readable(part.text), kind=kind, queue=job.queue.name, task=job.job.task, values=values)
    return format_html('<ul class="lq-tree"><li>{}</li></ul>', _value(value, "", 0, iter(range(MAX_VALUES))))


def _value(value: Any, label: SafeString | str, depth: int, budget: Iterator[int]) -> SafeString:
    """Draw a JSON value as a tree; what is in it as far as ``budget`` goes, each for one of it."""
    if not (isinstance(value, dict | list) and value and depth < _DEEPEST):
        return format_html("{}{}", label, _leaf(value))
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    shown = []
    for name, inner in pairs:
        if next(budget, None) is None:
            break
        key = format_html('<span class="lq-key">{}:</span> ', name)
        shown.append((_value(inner, key, depth + 1, budget),))
    size, left = len(pairs), len(pairs) - len(shown)
    rest = ""
    if left:
        rest = format_html('<li class="lq-hidden">{}</li>', _("and {number} more").format(number=count(left)))
    if isinstance(value, dict):
        what = ngettext("{number} name", "{number} names", size)
    else:
        what = ngettext("{number} item", "{number} items", size)
    lines = format_html_join("", "<li>{}</li>", shown)
    tree = '<details{}><summary>{}<span class="lq-quiet">{}</span></summary><ul>{}{}</ul></details>'
    opened = SafeString(" open") if depth < _OPEN else ""
    return format_html(tree, opened, label, what.format(number=count(size)), lines, rest)


def _leaf(value: Any) -> SafeString:
    if value == HIDDEN:
        return format_html('<span class="lq-hidden">{}</span>', HIDDEN)
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_TEXT:
        words = _("... {number} characters in all").format(number=count(len(text)))
        rest = format_html(' <span class="lq-hidden">{}</span>', words)
        return format_html("<code>{}</code>{}", text[:MAX_TEXT], rest)
    return format_html("<code>{}</code>", text)


class Source(NamedTuple):
    """The values that a job was enqueued with."""

    seq: int
    project: str
    queue: str
    type: str
    priority: int | None
    keyed: bool
    name: str | None
    tag: str | None
    data_json: str | None
    meta_json: str | None
    body: bytes | None
    max_deliveries: int | None
    result_ttl_ms: int | None


@operation
def copy_job(seq: int, origin: str) -> Statements[int | None]:
    """Enqueue what a job was enqueued with once more, with a key of its own; return its number (``None``: gone)."""
    rows = yield "admin/job_source", {"seq": seq}
    if not rows:
        return None
    (source,) = yield from large.steps([Source._make(rows[0])])
    meta = {} if source.meta_json is None else codec.loads(source.meta_json)
    # Other names with $ are the queue's, about the old job.
    own = {name: value for name, value in meta.items() if name == metadata.CONTEXT or not name.startswith("$")}
    job = engine.NewJob(
        data=None if source.data_json is None else codec.loads(source.data_json),
        body=source.body,
        name=source.name,
        tag=source.tag,
        priority=source.priority,
        meta=metadata.Noted(own) or None,
        tags=metadata.noted(source.meta_json, metadata.TAGS),
        result_ttl_ms=source.result_ttl_ms,
        max_deliveries=source.max_deliveries,
        origin=origin,
        id_end=new_end() if source.keyed else None,
    )
    (answer,) = yield from engine.enqueue(source.queue, [job], project=source.project)
    return answer.seq

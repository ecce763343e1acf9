"""The page of one job: what it is, every attempt, the timeline of its leases, its payload and result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from .. import engine
from ..engine import clock
from ..engine.dead.redaction import HIDDEN, readable, redact
from ..engine.jobs.steps import RESERVED
from ..enums import EventKind
from ..models import JobEvent, Worker
from . import pages, reading
from .history import attempts_of, draw, table_of


class PageLink(NamedTuple):
    """Where else to look."""

    label: str
    text: str
    url: str


def job_page(request: HttpRequest, site: AdminSite, seq: int) -> HttpResponse:
    """Answer with the page of a job; 404 where nothing is remembered of it."""
    job = reading.read_job(seq)
    events = reading.read_events(seq, job)
    if job is None and not events:
        raise Http404(f"There is no job {seq}, and nothing is remembered of it.")
    nodes = sorted({event.node for event in events if event.node})
    workers = reading.read_workers(nodes) if nodes else []
    member = reading.read(engine.member(seq)) if job is not None else None
    values = pages.allowed(request, "view_payload")
    steps = reading.read_steps(seq) if job is not None else []
    running = job is not None and job.live
    hosts = {worker.node: worker.host for worker in workers}
    workflow = member.workflow if member is not None and pages.allowed(request, "view_workflow") else None
    context = {
        "seen": job,
        "job": job and job.job,
        "seq": seq,
        "state": job.state if job else events[-1].get_kind_display(),
        "task": job.job.task if job else events[-1].name,
        "running": running,
        "member": member,
        "workflow_url": pages.url_or_none(site, "leasequeue_workflow", workflow) if workflow else None,
        "attempts": attempts_of(events, job.errors if job else [], hosts)[::-1],
        "drawing": draw(events, clock.now(), open_end=running),
        "lines": table_of(events)[::-1],
        "capped": len(events) == reading.MAX_EVENTS,
        "parts": _parts(job, values) if job else [],
        "values": values,
        "steps": [_step(job, step, values) for step in steps] if job else [],
        "most_steps": reading.MAX_STEPS,
        **_suspension(request, job, steps),
        "links": _links(request, site, job, events, workers),
        **_buttons(request, site, job),
        "every": 5 if running else 0,
    }
    crumbs = [pages.Crumb("Jobs", pages.url(site, "leasequeue_job_changelist"))]
    return pages.page(request, site, "job.html", context, title=f"Job {seq}", crumbs=crumbs)


def describe(job: reading.SeenJob) -> str:
    """Return a job in a few words for messages."""
    return f"Job {job.seq}{f' ({job.job.task})' if job.job.task else ''}"


def _parts(job: reading.SeenJob, values: bool) -> list[tuple[str, SafeString]]:
    """Return the label of each value, and its tree or how large it is."""
    found = [(part.label, _shown(job, part, part.label, values)) for part in job.parts if part.size is not None]
    for part in job.parts:
        if part.body is not None:
            label = "result body" if part.label == "result" else "body"
            found.append((label, format_html("<p>binary, {} bytes</p>", f"{part.body:,}")))
    return found


def _shown(job: reading.SeenJob, part: reading.Part, kind: str, values: bool) -> SafeString:
    if part.text is None:
        words = "" if part.size is None else f"{filesizeformat(part.size)} of JSON: too long to be shown here."
        return format_html("<p>{}</p>", words)
    return tree(redact(readable(part.text), kind=kind, queue=job.queue.name, task=job.job.task, values=values))


#: Values that one tree shows, and characters of one text.
MAX_VALUES = 2_000
MAX_TEXT = 4_000
#: Deeper levels are closed at first; below the last one only the JSON text is shown.
_OPEN = 3
_DEEPEST = 40


def tree(value: Any) -> SafeString:
    """Return the tree of a JSON value; of a very large one the first ``MAX_VALUES`` values."""
    return format_html('<ul class="lq-tree"><li>{}</li></ul>', _value(value, "", 0, iter(range(MAX_VALUES))))


def _value(value: Any, label: SafeString | str, depth: int, budget: Iterator[int]) -> SafeString:
    """Draw a value and what is in it, each of those for one of ``budget``."""
    if not (isinstance(value, dict | list) and value and depth < _DEEPEST):
        return format_html("{}{}", label, _leaf(value))
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    shown = []
    for name, inner in pairs:
        if next(budget, None) is None:
            break
        key = format_html('<span class="lq-key">{}:</span> ', name)
        shown.append((_value(inner, key, depth + 1, budget),))
    left = len(pairs) - len(shown)
    rest = format_html('<li class="lq-hidden">and {} more</li>', f"{left:,}") if left else ""
    what = f"{len(pairs):,} {'name' if isinstance(value, dict) else 'item'}{'' if len(pairs) == 1 else 's'}"
    return format_html(
        '<details{}><summary>{}<span class="lq-quiet">{}</span></summary><ul>{}{}</ul></details>',
        SafeString(" open") if depth < _OPEN else "",
        label,
        what,
        format_html_join("", "<li>{}</li>", shown),
        rest,
    )


def _leaf(value: Any) -> SafeString:
    if value == HIDDEN:
        return format_html('<span class="lq-hidden">{}</span>', HIDDEN)
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_TEXT:
        rest = format_html(' <span class="lq-hidden">... {} characters in all</span>', f"{len(text):,}")
        return format_html("<code>{}</code>{}", text[:MAX_TEXT], rest)
    return format_html("<code>{}</code>", text)


def _suspension(request: HttpRequest, job: reading.SeenJob | None, steps: Sequence[Any]) -> dict[str, Any]:
    """Return the actions on a suspended job that this user may take."""
    open_steps = [step for step in steps if step.part.size is None]
    if job is None or job.state != "delayed" or not open_steps:
        return {}
    events = [step.event for step in open_steps if step.event is not None and not step.event.startswith(RESERVED)]
    return {
        "can_wake": pages.allowed(request, "change_job"),
        "sleeps": all(step.event is None for step in open_steps),
        "events": events if pages.allowed(request, "emit_event") else [],
    }


def _step(job: reading.SeenJob, step: Any, values: bool) -> tuple[Any, str, SafeString]:
    """Return a step, what it waits for, and its value as far as it is shown."""
    what = "" if step.until is None else ("sleeps" if step.event is None else f"waits for {step.event}")
    if step.part.size is not None and step.until is not None:
        what = "is over"
    return step, what, _shown(job, step.part, "result", values)


def _links(
    request: HttpRequest,
    site: AdminSite,
    job: reading.SeenJob | None,
    events: Sequence[JobEvent],
    workers: list[Worker],
) -> list[PageLink]:
    links = []
    if job is not None and job.failure.fingerprint:
        print_ = job.failure.fingerprint
        query = {"fingerprint": print_, "queue": job.queue.name, "project": job.queue.project}
        group = pages.url_or_none(site, "leasequeue_deadletters_list")
        if group:
            links.append(PageLink("Group", f"dead letters like this ({print_})", f"{group}?{urlencode(query)}"))
    if job is not None and (node := job.job.worker) and pages.allowed(request, "view_worker"):
        known = any(worker.node == node for worker in workers)
        address = f"{pages.url(site, 'leasequeue_worker_changelist')}?{urlencode({'node': node})}"
        links.append(PageLink("Worker", node if known else f"{node} (gone)", address))
    if job is not None and (source := job.stored.source_seq) is not None:
        where = f"job {source} of {job.source.name if job.source else 'a queue that is gone'}"
        links.append(PageLink("Came from", where, pages.url(site, "leasequeue_job_change", source)))
    for event in events:
        detail = event.detail or {}
        if detail.get("to_seq") is not None:
            what = "Redriven to" if event.kind == EventKind.REDRIVEN else "Dead letter"
            text = f"job {detail['to_seq']} of {detail.get('to')}"
            links.append(PageLink(what, text, pages.url(site, "leasequeue_job_change", detail["to_seq"])))
    return links


def _buttons(request: HttpRequest, site: AdminSite, job: reading.SeenJob | None) -> dict[str, Any]:
    """What this user can do with this job now; the pages of dead letters do what is theirs."""
    if job is None:
        return {}
    can_copy = job.state != "record" and pages.allowed(request, "add_job")
    if not job.live:
        return {"can_copy": can_copy}
    dead = job.dead_letter is not None
    dead_letters = pages.url_or_none(site, "leasequeue_deadletters_act") if dead else None
    edit = pages.url_or_none(site, "leasequeue_deadletters_edit", job.seq) if dead else None
    return {
        "can_copy": can_copy,
        "can_run": job.state == "delayed" and pages.allowed(request, "change_job"),
        "can_cancel": job.state in ("ready", "delayed") and pages.allowed(request, "cancel_job"),
        "can_release": job.state == "leased" and pages.allowed(request, "release_job"),
        "dead_letters_url": dead_letters,
        "can_retry": dead_letters and pages.allowed(request, "retry_job"),
        "can_redrive": dead_letters and pages.allowed(request, "redrive_job"),
        "can_discard": dead_letters and pages.allowed(request, "discard_job"),
        "edit_url": edit if pages.allowed(request, "edit_job", "view_payload") else None,
    }

"""The page of one job: what it is, every attempt, the timeline of its leases, its payload and result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.safestring import SafeString

from .. import engine
from ..engine import clock
from ..engine.dead.redaction import readable, redact
from ..engine.jobs.events import RESERVED
from ..enums import EventKind
from ..models import Worker
from . import pages, reading
from .history import attempts_of, draw, table_of
from .payload import tree


class PayloadPart(NamedTuple):
    """A piece of the payload: its name, its tree, or only how large it is."""

    label: str
    tree: SafeString | None
    note: str


class PageLink(NamedTuple):
    """Where else to look."""

    label: str
    text: str
    url: str


def job_page(request: HttpRequest, site: AdminSite, seq: int) -> HttpResponse:
    """Answer with the page of a job.

    Raises:
        Http404: there is no such job, and nothing is remembered of it.
    """
    job = reading.read(reading.read_job(seq))
    events = reading.read_log(reading.read_events(seq))
    if job is None and not events:
        raise Http404(f"There is no job {seq}, and nothing is remembered of it.")
    nodes = sorted({event.node for event in events if event.node})
    workers = reading.read_workers(nodes) if nodes else []
    member = reading.read(engine.member(seq)) if job is not None else None
    values = pages.allowed(request, "view_payload")
    steps = reading.read(reading.read_steps(seq)) if job is not None else []
    running = job is not None and job.live
    return pages.page(
        request,
        site,
        "job.html",
        {
            "job": job,
            "seq": seq,
            "state": job.state if job else events[-1].kind,
            "task": job.name if job else events[-1].name,
            "running": running,
            "member": member,
            "workflow_url": pages.url_or_none(site, "leasequeue_workflow", member.workflow)
            if member is not None and member.workflow and pages.allowed(request, "view_workflow")
            else None,
            "attempts": attempts_of(
                events, job.errors if job else [], {worker.node: worker.host for worker in workers}
            )[::-1],
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
        },
        title=f"Job {seq}",
        crumbs=[pages.Crumb("Jobs", pages.url(site, "leasequeue_job_changelist"))],
    )


def describe(job: reading.JobFacts) -> str:
    """Return a job in a few words for messages."""
    return f"Job {job.seq}{f' ({job.name})' if job.name else ''}"


def _parts(job: reading.JobFacts, values: bool) -> list[PayloadPart]:
    parts = []
    for kind, text, size in (
        ("data", job.data_json, job.data_bytes),
        ("meta", job.meta_json, job.meta_bytes),
        ("progress", job.progress_json, job.progress_bytes),
        ("result", job.result_json, job.result_bytes),
    ):
        if text is not None:
            shown = redact(readable(text), kind=kind, queue=job.queue or "", task=job.name, values=values)
            parts.append(PayloadPart(kind, tree(shown), ""))
        elif size is not None:
            parts.append(PayloadPart(kind, None, f"{filesizeformat(size)} of JSON: too long to be shown here."))
    for label, size in (("body", job.body_bytes), ("result body", job.result_body_bytes)):
        if size is not None:
            parts.append(PayloadPart(label, None, f"binary, {size:,} bytes"))
    return parts


class StepLine(NamedTuple):
    """A step on the page: what it is, and its value as far as it is shown."""

    of: reading.StepFacts
    what: str
    tree: SafeString | None
    note: str


def _suspension(
    request: HttpRequest, job: reading.JobFacts | None, steps: Sequence[reading.StepFacts]
) -> dict[str, Any]:
    """Return the actions on a suspended job that this user may take."""
    open_steps = [step for step in steps if not step.over]
    if job is None or job.state != "delayed" or not open_steps:
        return {}
    events = [step.event for step in open_steps if step.event is not None and not step.event.startswith(RESERVED)]
    return {
        "can_wake": pages.allowed(request, "change_job"),
        "sleeps": all(step.event is None for step in open_steps),
        "events": events if pages.allowed(request, "emit_event") else [],
    }


def _step(job: reading.JobFacts, step: reading.StepFacts, values: bool) -> StepLine:
    what = "" if step.until is None else ("sleeps" if step.event is None else f"waits for {step.event}")
    if step.over and step.until is not None:
        what = "is over"
    if step.value_json is not None:
        shown = redact(readable(step.value_json), kind="result", queue=job.queue or "", task=job.name, values=values)
        return StepLine(step, what, tree(shown), "")
    note = "" if step.value_bytes is None else f"{filesizeformat(step.value_bytes)} of JSON: too long to be shown here."
    return StepLine(step, what, None, note)


def _links(
    request: HttpRequest,
    site: AdminSite,
    job: reading.JobFacts | None,
    events: Sequence[reading.LoggedEvent],
    workers: Sequence[Worker],
) -> list[PageLink]:
    links = []
    if job is not None and job.fingerprint:
        query = {"fingerprint": job.fingerprint, "queue": job.queue or "", "project": job.project or ""}
        group = pages.url_or_none(site, "leasequeue_deadletters_list")
        if group:
            links.append(
                PageLink("Group", f"dead letters like this ({job.fingerprint})", f"{group}?{urlencode(query)}")
            )
    if job is not None and job.node and pages.allowed(request, "view_worker"):
        known = any(worker.node == job.node for worker in workers)
        address = f"{pages.url(site, 'leasequeue_worker_changelist')}?{urlencode({'node': job.node})}"
        links.append(PageLink("Worker", job.node if known else f"{job.node} (gone)", address))
    if job is not None and job.source_seq is not None:
        where = f"job {job.source_seq} of {job.source_name or 'a queue that is gone'}"
        links.append(PageLink("Came from", where, pages.url(site, "leasequeue_job_change", job.source_seq)))
    for event in events:
        detail = event.detail
        if detail.get("to_seq") is not None:
            what = "Redriven to" if event.kind_number == EventKind.REDRIVEN else "Dead letter"
            text = f"job {detail['to_seq']} of {detail.get('to')}"
            links.append(PageLink(what, text, pages.url(site, "leasequeue_job_change", detail["to_seq"])))
    return links


def _buttons(request: HttpRequest, site: AdminSite, job: reading.JobFacts | None) -> dict[str, Any]:
    """What this user can do with this job now; the pages of dead letters do what is theirs."""
    if job is None:
        return {}
    can_copy = job.queue is not None and job.state != "record" and pages.allowed(request, "add_job")
    if not job.live:
        return {"can_copy": can_copy}
    dead = job.dead_at is not None
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

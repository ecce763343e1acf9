"""The list of jobs and the page of one job."""

from __future__ import annotations

from typing import NamedTuple

from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from .. import engine
from ..engine import codec, tags
from ..engine import payloads as large
from ..engine.jobs.steps import emit, rouse_job
from ..engine.limits import MAX_SEQ
from ..engine.operation import Steps, operation
from ..exceptions import LeaseQueueError
from ..models import Job
from ..tasks.results import new_end
from . import pages, reading
from .audit import record
from .job_list import job_list
from .job_page import describe, job_page
from .pages import PageAdmin

#: What is done to a job, and the permission that it needs.
_ACTIONS = {
    "cancel": "cancel_job",
    "release": "release_job",
    "run": "change_job",
    "copy": "add_job",
    "wake": "change_job",
    "emit": "emit_event",
}


@admin.register(Job)
class JobAdmin(PageAdmin[Job]):
    """Jobs are looked at, not edited: what changes them is the engine, by the buttons of the page."""

    def get_urls(self) -> list[URLPattern]:
        return [
            path("", self.view(self.changelist), name="leasequeue_job_changelist"),
            path("<int:seq>/change/", self.view(self.change), name="leasequeue_job_change"),
            path("<int:seq>/act/", self.act_view(self.act), name="leasequeue_job_act"),
        ]

    def changelist(self, request: HttpRequest) -> HttpResponse:
        pages.require(request, "view_job")
        return job_list(request, self.admin_site)

    def change(self, request: HttpRequest, seq: int) -> HttpResponse:
        pages.require(request, "view_job")
        return job_page(request, self.admin_site, _number(seq))

    def act(self, request: HttpRequest, seq: int) -> HttpResponse:
        """Do something with one job: a POST with ``action``, for a release also ``claim``, the lease that is meant."""
        action = pages.action_of(request, _ACTIONS, "view_job")
        job = reading.read_job(_number(seq))
        to = seq
        if job is None or not (job.live or action == "copy"):
            messages.error(request, f"Job {seq} is not there any more.")
        else:
            try:
                with transaction.atomic(using=reading.alias()):
                    done, text, *made = getattr(self, f"_{action}")(request, job)
                    to = made[0] if made else seq
                    if done:
                        more = {"event": request.POST.get("event", "")} if action == "emit" else {}
                        detail = {"state": job.state, "node": job.job.worker, "claim": job.job.claim, **more}
                        place = {"project": job.queue.project, "queue": job.queue.name}
                        record(
                            request, action, obj=Job(seq=seq), **place, seqs=[seq], counts={"done": 1}, detail=detail
                        )
            except LeaseQueueError as error:
                done, text = False, str(error)
            messages.add_message(request, messages.SUCCESS if done else messages.ERROR, text)
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_job_change", to))

    def _copy(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str] | tuple[bool, str, int]:
        made = reading.run(copy_job(job.seq, f"admin:{request.user.get_username()}"))
        if made is None:
            return False, f"{describe(job)} was not copied: nothing is left of it."
        return True, f"This is a copy of job {job.seq}.", made

    def _run(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str]:
        if Job.objects.using(reading.alias()).filter(pk=job.seq).run_now():
            return True, f"{describe(job)} is ready now."
        return False, f"{describe(job)} is not delayed any more."

    def _wake(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str]:
        over = reading.run(rouse_job(job.seq))
        if over:
            return True, f"{describe(job)} goes on: {', '.join(name for name, _ in over)} is over."
        return False, f"{describe(job)} neither sleeps nor waits any more."

    def _emit(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str]:
        event, text = request.POST.get("event", ""), request.POST.get("payload", "").strip()
        try:
            payload = None if not text else codec.loads(text)
        except ValueError as error:
            return False, f"The payload of the event is not JSON: {error}."
        if reading.run(emit(event, payload, project=job.queue.project)):
            return True, f"The event {event} was emitted: jobs that wait for it go on."
        return False, f"The event {event} had been emitted before: its first payload stays."

    def _cancel(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str]:
        gone = reading.run(engine.cancel(job.queue.name, seqs=[job.seq], project=job.queue.project))
        if gone:
            return True, f"{describe(job)} was cancelled."
        return False, f"{describe(job)} was not cancelled: it has started, or it has ended."

    def _release(self, request: HttpRequest, job: reading.SeenJob) -> tuple[bool, str]:
        claim = request.POST.get("claim")
        node = job.job.worker
        if job.state != "leased" or node is None or claim != str(job.job.claim):
            return False, f"{describe(job)} was not released: the lease that you saw has ended."
        asked = engine.Release(job.seq, job.job.claim, delay_ms=0)
        settled = reading.run(engine.release([asked], node, project=job.queue.project))
        if job.seq in settled.released:
            return True, f"{describe(job)} was taken from {node} and is {settled.released[job.seq].state}."
        return False, f"{describe(job)} was not released: {settled.outcomes[job.seq].value.replace('_', ' ')}."


def _number(seq: int) -> int:
    if seq > MAX_SEQ:
        raise Http404
    return seq


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
def copy_job(seq: int, origin: str) -> Steps[int | None]:
    """Enqueue what a job was enqueued with once more, with a key of its own; return its number (``None``: gone)."""
    rows = yield "admin/job_source", {"seq": seq}
    if not rows:
        return None
    (source,) = yield from large.steps([Source._make(rows[0])])
    meta = {} if source.meta_json is None else codec.loads(source.meta_json)
    job = engine.NewJob(
        data=None if source.data_json is None else codec.loads(source.data_json),
        body=source.body,
        name=source.name,
        tag=source.tag,
        priority=source.priority,
        # Names with $ are the queue's, about the old job.
        meta={name: value for name, value in meta.items() if not name.startswith("$")} or None,
        tags=tags.of_meta(source.meta_json),
        result_ttl_ms=source.result_ttl_ms,
        max_deliveries=source.max_deliveries,
        origin=origin,
        id_end=new_end() if source.keyed else None,
    )
    (answer,) = yield from engine.enqueue(source.queue, [job], project=source.project).steps()
    return answer.seq

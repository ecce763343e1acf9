"""The list of jobs and the page of one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path

from .. import engine
from ..engine.limits import MAX_SEQ
from ..exceptions import LeaseQueueError
from ..models import Job
from . import pages, reading
from .base import PageAdmin
from .job_list import job_list
from .job_page import describe, job_page

if TYPE_CHECKING:
    JobPageAdmin = PageAdmin[Job]
else:
    JobPageAdmin = PageAdmin


@admin.register(Job)
class JobAdmin(JobPageAdmin):
    """Jobs are looked at, not edited: what changes them is the engine, by the buttons of the page."""

    def page_urls(self) -> list[URLPattern]:
        """The pages of jobs."""
        return [
            path("", self.view(self.changelist), name="leasequeue_job_changelist"),
            path("<int:seq>/change/", self.view(self.change), name="leasequeue_job_change"),
            path("<int:seq>/act/", self.view(self.act), name="leasequeue_job_act"),
        ]

    def changelist(self, request: HttpRequest) -> HttpResponse:
        """The jobs of a queue in one state, and the search."""
        pages.require(request, "view_job")
        return job_list(request, self.admin_site)

    def change(self, request: HttpRequest, seq: int) -> HttpResponse:
        """One job."""
        pages.require(request, "view_job")
        return job_page(request, self.admin_site, _number(seq))

    def act(self, request: HttpRequest, seq: int) -> HttpResponse:
        """Cancel or release one job: a POST with ``action``, for a release also ``claim``, the lease that is meant."""
        action = request.POST.get("action", "")
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if action not in ("cancel", "release"):
            raise Http404
        pages.require(request, "view_job", f"{action}_job")
        job = reading.read(reading.read_job(_number(seq)))
        if job is None or not job.live or job.queue is None:
            messages.error(request, f"Job {seq} is not there any more.")
        else:
            try:
                with transaction.atomic(using=reading.alias()):
                    done, text = self._do(action, job, request.POST.get("claim"))
                    if done:
                        self.record(request, action, job)
            except LeaseQueueError as error:
                done, text = False, str(error)
            messages.add_message(request, messages.SUCCESS if done else messages.ERROR, text)
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_job_change", seq))

    def _do(self, action: str, job: reading.JobFacts, claim: str | None) -> tuple[bool, str]:
        return self._cancel(job) if action == "cancel" else self._release(job, claim)

    def _cancel(self, job: reading.JobFacts) -> tuple[bool, str]:
        gone = engine.run(engine.cancel(job.queue or "", seqs=[job.seq], project=job.project or ""))
        if gone:
            return True, f"{describe(job)} was cancelled."
        return False, f"{describe(job)} was not cancelled: somebody has started it, or it has ended."

    def _release(self, job: reading.JobFacts, claim: str | None) -> tuple[bool, str]:
        if job.node is None or claim != str(job.claim):
            return False, f"{describe(job)} was not released: the lease that you saw has ended."
        asked = engine.Release(job.seq, job.claim, delay_ms=0)
        settled = engine.run(engine.release([asked], job.node, project=job.project or ""))
        if job.seq in settled.released:
            return True, f"{describe(job)} was taken from {job.node} and is {settled.released[job.seq].state}."
        return False, f"{describe(job)} was not released: {settled.outcomes[job.seq].value.replace('_', ' ')}."

    def record(self, request: HttpRequest, action: str, job: reading.JobFacts) -> None:
        """Write what was done to the audit."""
        from .audit import record

        detail: dict[str, Any] = {"state": job.state, "node": job.node, "claim": job.claim}
        record(
            request,
            action,
            obj=Job(seq=job.seq),
            project=job.project or "",
            queue=job.queue or "",
            seqs=[job.seq],
            counts={"done": 1},
            detail=detail,
        )


def _number(seq: int) -> int:
    if seq > MAX_SEQ:
        raise Http404
    return seq

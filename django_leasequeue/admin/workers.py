"""Workers in the admin: what each runs now, and asking some to stop."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from ..engine.clock import span
from ..models import Worker
from ..reaper.concerns import seen
from ..templatetags.leasequeue_admin import ago
from . import audit, pages, reading
from .pages import ListAdmin, column, count_of, moment_of

#: Jobs of a worker that the list names.
_RUNNING = 3


def _condition(worker: Worker) -> SafeString:
    """Return its state, as far as it can be believed."""
    if worker.gone:
        return pages.badge("gone", f"not seen for {span(worker.silent)}")
    if worker.stop_requested_at is None:
        return pages.badge(worker.state)
    asked = pages.badge("draining", f"asked to stop {ago(worker.stop_requested_at)}")
    return format_html("{} {}", pages.badge(worker.state), asked)


@admin.register(Worker)
class WorkerAdmin(ListAdmin[Worker]):
    """Workers say of themselves that they are there."""

    list_display = [
        "node",
        "condition",
        column("queues", lambda worker: Truncator(", ".join(worker.queues) or "all").chars(80)),
        "now",
        *map(count_of, ("completed", "failed", "retried", "lost")),
        "last_seen",
    ]  # fmt: skip
    search_fields = ["node", "host"]
    actions = ["stop"]
    every = 5
    fields = [
        "node", "condition", "host", "pid", "project", "queues", "concurrency", "since", "last_seen",
        "completed", "failed", "retried", "lost", "runs",
    ]  # fmt: skip
    readonly_fields = ["condition", "since", "last_seen", "runs"]
    condition = staticmethod(column("state", _condition, "state"))
    last_seen = staticmethod(column("seen", lambda worker: f"{span(worker.silent)} ago", "seen_at"))
    since = staticmethod(moment_of("started_at", "since"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return seen(super().get_queryset(request))

    def has_stop_permission(self, request: HttpRequest) -> bool:
        return pages.allowed(request, "stop_worker")

    @admin.display(description="running")
    def now(self, worker: Worker) -> SafeString:
        jobs = [] if worker.gone else worker.running
        rest = f" and {len(jobs) - _RUNNING} more" if len(jobs) > _RUNNING else ""
        return format_html("{} of {}{}{}", len(jobs), worker.concurrency, self._lines(jobs[:_RUNNING]), rest)

    @admin.display(description="runs now")
    def runs(self, worker: Worker) -> SafeString:
        return self._lines([] if worker.gone else worker.running) or SafeString("nothing")

    def _lines(self, jobs: list[dict[str, Any]]) -> SafeString:
        rows = ((self.job_link(job["seq"]), job.get("name") or "", job["queue"], span(job["seconds"])) for job in jobs)
        return format_html_join("", "<div>{} {} <small>{}, for {}</small></div>", rows)

    @admin.action(description="Ask the selected workers to stop", permissions=["stop"])
    def stop(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        asked = 0
        for worker in queryset:
            with transaction.atomic(using=reading.alias()):
                if reading.run(reading.ask_worker_to_stop(worker.pk)):
                    audit.record(request, "stop_worker", obj=worker, detail={"node": worker.node})
                    asked += 1
        text = f"{asked} asked to stop with the next sign of life: they claim nothing more and end their jobs."
        others = "The others had been asked before, or are gone."
        self.message_user(request, f"{text} {others}", messages.SUCCESS if asked else messages.WARNING)

"""Bulk operations in the admin: all of them, and one with its progress, conflicts and buttons."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from .. import conf, engine
from ..engine import DjangoExecutor
from ..engine.dead.action import CONFLICTS
from ..engine.dead.bulkoperation import change_operation
from ..engine.dead.filter import from_query
from ..engine.dead.redaction import HIDDEN
from ..exceptions import InvalidOption
from ..models import BulkOperation, OperationState
from ..reaper.leader import LOCK
from . import audit, filters, pages, reading
from .base import ReadOnlyAdmin

PAGE = 50
#: Conflicts that the page of an operation shows one by one.
SHOWN_CONFLICTS = 100
_BUTTONS = {
    OperationState.PENDING: (("pause", "Pause"), ("cancel", "Cancel")),
    OperationState.RUNNING: (("pause", "Pause"), ("cancel", "Cancel")),
    OperationState.PAUSED: (("resume", "Resume"), ("cancel", "Cancel")),
}


@admin.register(BulkOperation)
class BulkOperationAdmin(ReadOnlyAdmin[BulkOperation]):
    """Its pages are its own; who may start a kind of operation may also stop it."""

    permission = "view_bulkoperation"

    def page_urls(self) -> list[URLPattern]:
        return [
            path("", self.view(self.index), name="leasequeue_operations"),
            path("", self.view(self.index), name="leasequeue_bulkoperation_changelist"),
            path("<int:pk>/", self.view(self.one), name="leasequeue_operation"),
            # The name that Django's own log looks for.
            path("<int:pk>/change/", self.view(self.moved), name="leasequeue_bulkoperation_change"),
        ]

    def moved(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Lead from Django's log to the operation."""
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_operation", pk))

    def index(self, request: HttpRequest) -> HttpResponse:
        """All operations, the newest first."""
        pages.require(request, "view_bulkoperation")
        found = BulkOperation.objects.order_by("-pk").defer("seqs", "conflict_sample", "conflict_counts", "cursor")
        before = request.GET.get("before", "")
        if before.isdecimal() and len(before) < 19:
            found = found.filter(pk__lt=int(before))
        rows = list(found[: PAGE + 1])
        more = rows[PAGE - 1].pk if len(rows) > PAGE else None
        return pages.page(
            request,
            self.admin_site,
            "deadletters/operations.html",
            {
                "operations": [
                    {"of": row, "url": pages.url(self.admin_site, "leasequeue_operation", row.pk), **_progress(row)}
                    for row in rows[:PAGE]
                ],
                "next_url": None if more is None else filters.with_query(request.path, before=str(more)),
                "every": 2 if any(row.is_active for row in rows) else 0,
            },
            title="Bulk operations",
        )

    def one(self, request: HttpRequest, pk: int) -> HttpResponse:
        """One operation; a POST pauses, resumes or cancels it."""
        pages.require(request, "view_bulkoperation")
        made = BulkOperation.objects.filter(pk=pk).defer("seqs").first()
        if made is None:
            raise Http404(f"There is no operation {pk}.")
        if request.method == "POST":
            return self._change(request, made)
        may = pages.allowed(request, f"{made.kind}_job")
        leaders = DjangoExecutor(conf.settings.DATABASE).fetch("reaper_leader", LOCK) if made.is_active else [()]
        context: dict[str, Any] = {
            "made": made,
            "buttons": _BUTTONS.get(OperationState(made.state), ()) if may else (),
            "every": 1 if made.is_active else 0,
            **_progress(made),
            "no_reaper": not leaders,
            "words": _words(request, made),
            "whys": [
                (CONFLICTS.get(why, why), count)
                for why, count in sorted(made.conflict_counts.items(), key=lambda i: -i[1])
            ],
            "sample": [
                (seq, CONFLICTS.get(why, why), pages.url_or_none(self.admin_site, "leasequeue_job_change", seq))
                for seq, why in made.conflict_sample[:SHOWN_CONFLICTS]
            ],
            "back": filters.safe_next(request, self.admin_site),
            "here": request.get_full_path(),
        }
        return pages.page(
            request,
            self.admin_site,
            "deadletters/operation.html",
            context,
            title=f"Operation {pk}: {made.get_kind_display()}",
            crumbs=[pages.Crumb("Bulk operations", pages.url(self.admin_site, "leasequeue_operations"))],
        )

    def _change(self, request: HttpRequest, made: BulkOperation) -> HttpResponse:
        pages.require(request, f"{made.kind}_job")
        change = request.POST.get("change", "")
        try:
            with transaction.atomic(using=reading.alias()):
                done = engine.run(change_operation(made.pk, change))
                if done is not None:
                    audit.record(
                        request,
                        f"{made.kind}.{change}",
                        obj=made,
                        project=made.project or "",
                        queue=made.queue or "",
                        counts={"done": done.done, "conflicts": done.conflicts},
                        operation=made,
                    )
        except InvalidOption as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.get_full_path())
        if done is None:
            messages.error(request, "Its state does not allow that any more.")
        else:
            words = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}
            messages.success(request, f"Operation {made.pk} is {words[change]}.")
        return HttpResponseRedirect(request.get_full_path())


def _words(request: HttpRequest, made: BulkOperation) -> list[str]:
    words = from_query(made.filters).words() if made.filters else []
    if pages.allowed(request, "view_payload"):
        return words
    return [f"payload {HIDDEN}" if word.startswith("payload ") else word for word in words]


def _progress(made: BulkOperation) -> dict[str, Any]:
    """Return how far an operation is: its share of what is expected, in percent too, and the seconds that are left.

    ``None`` where it is not known: nobody has counted, or nothing has been done yet.
    """
    if not made.expected or made.expected_capped:
        return {"share": None, "percent": None, "left": None}
    share = min(made.done + made.conflicts, made.expected)
    left: float | None = None
    if made.state == OperationState.RUNNING and made.started_at is not None and share:
        took = (engine.clock.now() - made.started_at).total_seconds()
        left = took / share * (made.expected - share)
    return {"share": share, "percent": 100 * share // made.expected, "left": left}

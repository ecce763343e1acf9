"""Bulk operations in the admin: all of them, and one with its progress, conflicts and buttons."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.safestring import SafeString

from .. import engine
from ..engine.dead.action import CONFLICTS
from ..engine.dead.bulkoperation import change
from ..engine.dead.filter import from_query
from ..engine.dead.redaction import HIDDEN
from ..engine.limits import seq_of
from ..exceptions import InvalidOption
from ..models import BulkOperation, OperationState
from ..models.operators import ACTIVE
from ..reaper.leader import Leader
from ..templatetags.leasequeue_admin import count
from . import audit, pages, reading
from .pages import ListAdmin, column, count_of, moment_of

SHOWN_CONFLICTS = 100
_BUTTONS = {
    **dict.fromkeys((OperationState.PENDING, OperationState.RUNNING), (("pause", "Pause"), ("cancel", "Cancel"))),
    OperationState.PAUSED: (("resume", "Resume"), ("cancel", "Cancel")),
}


def _progress(made: BulkOperation) -> dict[str, Any]:
    """Return how far an operation is: its share of what is expected, in percent too, and the seconds that are left.

    ``None`` where it is not known: it was not counted, or nothing has been done yet.
    """
    if not made.expected or made.expected_capped:
        return {"share": None, "percent": None, "left": None}
    share = min(made.done + made.conflicts, made.expected)
    left: float | None = None
    if made.state == OperationState.RUNNING and made.started_at is not None and share:
        took = (engine.clock.now() - engine.clock.aware(made.started_at)).total_seconds()
        left = took / share * (made.expected - share)
    return {"share": share, "percent": 100 * share // made.expected, "left": left}


def _bar(made: BulkOperation) -> SafeString | str:
    found = _progress(made)
    if found["percent"] is None:
        return "unknown"
    left = "" if found["left"] is None else f", about {engine.clock.span(found['left'])} left"
    bar = '<progress value="{}" max="100" aria-label="Progress of operation {}"></progress> {} %{}'
    return format_html(bar, found["percent"], made.pk, found["percent"], left)


@admin.register(BulkOperation)
class BulkOperationAdmin(ListAdmin[BulkOperation]):
    """The list of them, and a page of our own for one; who may start a kind of operation may also stop it."""

    list_display = [
        column("operation", lambda made: f"{made.pk}: {made.get_kind_display()}", "pk"),
        column("state", lambda made: pages.badge(made.state, made.get_state_display()), "state"),
        column("progress", _bar),
        column("queue", lambda made: (made.queue or "all") + (f" to {made.target}" if made.target else ""), "queue"),
        column("expected", lambda made: f"{count(made.expected)}{'+' if made.expected_capped else ''}", "expected"),
        count_of("done"),
        count_of("conflicts", "left alone"),
        "username",
        moment_of("created_at", "asked for"), moment_of("finished_at", "ended"),
    ]  # fmt: skip
    search_fields = ["=queue", "=username"]
    ordering = ["-pk"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[BulkOperation]:
        return super().get_queryset(request).defer("seqs", "conflict_sample", "conflict_counts", "cursor")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        active = BulkOperation.objects.using(reading.alias()).filter(state__in=ACTIVE).exists()
        return super().changelist_view(request, {"every": 2 if active else 0, **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One operation; a POST pauses, resumes or cancels it."""
        pages.require(request, "view_bulkoperation")
        pk = seq_of(object_id) or 0
        made = BulkOperation.objects.using(reading.alias()).filter(pk=pk).defer("seqs").first()
        if made is None:
            raise Http404(f"There is no operation {object_id}.")
        if request.method == "POST":
            return self._change(request, made)
        may = pages.allowed(request, f"{made.kind}_job")
        words = from_query(made.filters).words() if made.filters else []
        if not pages.allowed(request, "view_payload"):
            words = [f"payload {HIDDEN}" if word.startswith("payload ") else word for word in words]
        executor = engine.DjangoExecutor(reading.alias())
        no_reaper = made.is_active and Leader.of(executor.fetch("reaper_look", {})) is None
        context: dict[str, Any] = {
            "made": made,
            "buttons": _BUTTONS.get(OperationState(made.state), ()) if may else (),
            "every": 1 if made.is_active else 0,
            **_progress(made),
            "no_reaper": no_reaper,
            "words": words,
            "whys": [(CONFLICTS.get(why, why), count) for why, count in Counter(made.conflict_counts).most_common()],
            "sample": [
                (seq, CONFLICTS.get(why, why), self.job_url(seq)) for seq, why in made.conflict_sample[:SHOWN_CONFLICTS]
            ],
            "back": self.back(request),
        }
        title = f"Operation {made.pk}: {made.get_kind_display()}"
        crumbs = [("Bulk operations", "leasequeue_bulkoperation_changelist")]
        return self.page(request, "deadletters/operation.html", context, title=title, crumbs=crumbs)

    def _change(self, request: HttpRequest, made: BulkOperation) -> HttpResponse:
        pages.require(request, f"{made.kind}_job")
        told = request.POST.get("change", "")
        try:
            done = change(made.pk, told, partial(audit.record, request, obj=made), reading.alias())
        except InvalidOption as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.get_full_path())
        if done is None:
            messages.error(request, "Its state does not allow that any more.")
        else:
            words = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}
            messages.success(request, f"Operation {made.pk} is {words[told]}.")
        return HttpResponseRedirect(request.get_full_path())

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
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

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
    **dict.fromkeys(
        (OperationState.PENDING, OperationState.RUNNING),
        (("pause", gettext_lazy("Pause")), ("cancel", gettext_lazy("Cancel"))),
    ),
    OperationState.PAUSED: (("resume", gettext_lazy("Resume")), ("cancel", gettext_lazy("Cancel"))),
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
        return _("unknown")
    left, words = found["left"], f"{found['percent']} %"
    if left is not None:
        words = _("{percent} %, about {time} left").format(percent=found["percent"], time=engine.clock.span(left))
    label = _("Progress of operation {number}").format(number=made.pk)
    bar = '<progress value="{}" max="100" aria-label="{}"></progress> {}'
    return format_html(bar, found["percent"], label, words)


def _expected(made: BulkOperation) -> str:
    return f"{count(made.expected)}{'+' if made.expected_capped else ''}"


def _where(made: BulkOperation) -> str:
    queue = made.queue or _("all")
    return _("{queue} to {target}").format(queue=queue, target=made.target) if made.target else queue


@admin.register(BulkOperation)
class BulkOperationAdmin(ListAdmin[BulkOperation]):
    """The list of them, and a page of our own for one; who may start a kind of operation may also stop it."""

    list_display = [
        column(gettext_lazy("operation"), lambda made: f"{made.pk}: {_(made.get_kind_display())}", "pk"),
        column(gettext_lazy("state"), lambda made: pages.badge(made.state, _(made.get_state_display())), "state"),
        column(gettext_lazy("progress"), _bar),
        column(gettext_lazy("queue"), _where, "queue"),
        column(gettext_lazy("expected"), _expected, "expected"),
        count_of("done", gettext_lazy("done")),
        count_of("conflicts", gettext_lazy("left alone")),
        "username",
        moment_of("created_at", gettext_lazy("asked for")), moment_of("finished_at", gettext_lazy("ended")),
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
            "whys": [
                (_(CONFLICTS.get(why, why)), number) for why, number in Counter(made.conflict_counts).most_common()
            ],
            "sample": [
                (seq, _(CONFLICTS.get(why, why)), self.job_url(seq))
                for seq, why in made.conflict_sample[:SHOWN_CONFLICTS]
            ],
            "back": self.back(request),
        }
        title = _("Operation {number}: {kind}").format(number=made.pk, kind=_(made.get_kind_display()))
        crumbs = [(_("Bulk operations"), "leasequeue_bulkoperation_changelist")]
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
            messages.error(request, _("Its state does not allow that any more."))
        else:
            words = {
                "pause": _("Operation {number} is paused."),
                "resume": _("Operation {number} is resumed."),
                "cancel": _("Operation {number} is cancelled."),
            }
            messages.success(request, words[told].format(number=made.pk))
        return HttpResponseRedirect(request.get_full_path())

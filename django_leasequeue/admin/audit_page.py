"""The audit in the admin: every operator's action, Django's own log beside it, exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path

from ..engine.dead import export as exporting
from ..engine.limits import seq_of
from ..exceptions import InvalidOption
from ..models import OperatorAction
from . import audit, downloads, filters, pages
from .base import ReadOnlyAdmin

PAGE = 50
#: Lines of Django's log that one page looks at and shows: it has no index of ours.
LOOKED_AT, SHOWN = 1_000, 50
#: Lines of an export that are read at once.
EXPORTED_AT_ONCE = 500
COLUMNS = (
    "id", "at", "user_id", "username", "source", "action", "project", "queue", "seqs", "filters", "counts", "reason",
    "operation_id", "detail",
)  # fmt: skip


@admin.register(OperatorAction)
class OperatorActionAdmin(ReadOnlyAdmin[OperatorAction]):
    """Read only, for everybody."""

    permission = "view_operatoraction"

    def page_urls(self) -> list[URLPattern]:
        return [
            path("", self.view(self.lines), name="leasequeue_audit"),
            path("", self.view(self.lines), name="leasequeue_operatoraction_changelist"),
            path("export/", self.view(self.export), name="leasequeue_audit_export"),
            path("<int:pk>/change/", self.view(self.moved), name="leasequeue_operatoraction_change"),
        ]

    def moved(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Lead from Django's log to the line."""
        address = pages.url(self.admin_site, "leasequeue_audit")
        return HttpResponseRedirect(filters.with_query(address, before=str(pk + 1)))

    def lines(self, request: HttpRequest) -> HttpResponse:
        """The newest lines first."""
        pages.require(request, "view_operatoraction")
        rows = list(self._wanted(request)[: PAGE + 1])
        given = {name: request.GET.get(name, "") for name in ("username", "action", "queue", "operation")}
        query = {name: value for name, value in given.items() if value}
        return pages.page(
            request,
            self.admin_site,
            "deadletters/audit.html",
            {
                "lines": [self._line(request, row) for row in rows[:PAGE]],
                "next_url": filters.with_query(request.path, **query, before=str(rows[PAGE - 1].pk))
                if len(rows) > PAGE
                else None,
                "given": given,
                "others": _django_log(),
                "exports": [
                    (
                        words,
                        filters.with_query(pages.url(self.admin_site, "leasequeue_audit_export"), **query, format=kind),
                    )
                    for words, kind in (("CSV", "csv"), ("JSON Lines", "jsonl"))
                ],
            },
            title="Operator actions",
        )

    def _wanted(self, request: HttpRequest) -> QuerySet[OperatorAction]:
        found = OperatorAction.objects.order_by("-pk")
        for name in ("username", "action", "queue"):
            if value := request.GET.get(name, "").strip():
                found = found.filter(**{name: value})
        for name, field in (("operation", "operation_id"), ("before", "pk__lt")):
            number = seq_of(request.GET.get(name, ""))
            if number is not None:
                found = found.filter(**{field: number})
        return found

    def _line(self, request: HttpRequest, row: OperatorAction) -> dict[str, Any]:
        return {
            "of": row,
            "filter": filters.shown(request, row.filters),
            "counts": ", ".join(f"{name} {value}" for name, value in row.counts.items()),
            "operation_url": pages.url(self.admin_site, "leasequeue_operation", row.operation_id)
            if row.operation_id
            else None,
            "jobs": [(seq, pages.url_or_none(self.admin_site, "leasequeue_job_change", seq)) for seq in row.seqs[:5]],
            "more_jobs": max(len(row.seqs) - 5, 0),
            "difference": row.detail.get("difference", []) if pages.allowed(request, "view_payload") else [],
        }

    def export(self, request: HttpRequest) -> HttpResponseBase:
        """Download the lines that the page's filter wants."""
        pages.require(request, "view_operatoraction")
        try:
            kind = exporting.check_kind(request.GET.get("format", "csv"))
        except InvalidOption as problem:
            raise Http404(str(problem)) from problem
        audit.record(request, "audit.export", detail={"format": kind})
        values = pages.allowed(request, "view_payload")

        def rows() -> Iterator[dict[str, Any]]:
            # Page by page: a cursor on the server would stay open when nobody takes the rest.
            wanted = found = self._wanted(request)
            while page := list(found.values(*COLUMNS)[:EXPORTED_AT_ONCE]):
                for row in page:
                    if not values:
                        row["detail"].pop("difference", None)
                        row["filters"] = filters.shown(request, row["filters"])
                    yield row
                found = wanted.filter(pk__lt=page[-1]["id"])

        return downloads.response(lambda: exporting.lines(rows(), COLUMNS, kind), kind, "audit")


def _django_log() -> list[LogEntry]:
    """Return the newest entries of Django's log about this app that the audit does not hold itself."""
    ours = {
        kind.pk
        for kind in ContentType.objects.filter(app_label="leasequeue")
        if kind.model not in ("operatoraction", "bulkoperation")
    }
    newest = LogEntry.objects.select_related("user", "content_type").order_by("-pk")[:LOOKED_AT]
    return [entry for entry in newest if entry.content_type_id in ours][:SHOWN]

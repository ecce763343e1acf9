"""Dead letters in the admin: groups, lists, exports, saved filters, and the way to what is done with them."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path

from .. import engine
from ..engine.dead import redaction as exporting
from ..engine.dead.action import KINDS
from ..engine.dead.filter import EMPTY, DeadFilter
from ..engine.dead.search import DeadRow
from ..engine.dead.triage import BUCKET_CAP, MAX_COUNTED, DeadGroup, dead_groups, dead_page
from ..exceptions import InvalidOption
from ..metrics import charts
from ..models import DeadLetter
from . import audit, deadaction, deadedit, filters, pages, reading
from .pages import ReadOnlyAdmin

GROUPS_PAGE, LIST_PAGE = 20, 50


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin[DeadLetter]):
    """Its pages are its own: nothing here goes through the model."""

    permission = "view_job"

    def get_urls(self) -> list[URLPattern]:
        site = self.admin_site
        saving = partial(filters.change_saved, site=site)
        return [
            path("", self.view(self.groups), name="leasequeue_deadletters"),
            # The name that the admin's start page looks for.
            path("", self.view(self.groups), name="leasequeue_deadletter_changelist"),
            path("list/", self.view(self.dead_letters), name="leasequeue_deadletters_list"),
            path("act/", self.act_view(partial(deadaction.act, site=site)), name="leasequeue_deadletters_act"),
            path("export/", self.view(self.export), name="leasequeue_deadletters_export"),
            path("filters/", self.act_view(saving), name="leasequeue_deadletters_filters"),
            path("<int:seq>/edit/", self.view(partial(deadedit.edit, site=site)), name="leasequeue_deadletters_edit"),
        ]

    def groups(self, request: HttpRequest) -> HttpResponse:
        pages.require(request, "view_job")
        wanted, error = filters.read(request)
        largest = request.GET.get("sort") == "largest"
        sorting = {"sort": "largest"} if largest else {}
        try:
            after = request.GET.get("after") or None
            found = reading.run(dead_groups(wanted, after=after, size=GROUPS_PAGE, largest=largest))
        except InvalidOption as problem:  # the cursor
            messages.error(request, str(problem))
            return HttpResponseRedirect(filters.with_query(request.path, wanted.query()))
        context = {
            **self._shared(request, wanted, error),
            "groups": [self._group(request, wanted, group) for group in found.groups],
            "found": found,
            "largest": largest,
            "largest_url": filters.with_query(request.path, wanted.query(), sort="largest"),
            "newest_url": filters.with_query(request.path, wanted.query()),
            "most_counted": MAX_COUNTED,
            "next_url": self._after(request, wanted, found.next, **sorting),
            "search": not wanted.indexed,
        }
        return pages.page(request, self.admin_site, "deadletters/groups.html", context, title="Dead letters")

    def _group(self, request: HttpRequest, wanted: DeadFilter, group: DeadGroup) -> dict[str, Any]:
        query = wanted.query(project=group.project, queue=group.queue, fingerprint=group.fingerprint)
        count, most = f"{group.dead_letters:,}{'+' if group.capped else ''}", max(group.bars, default=0)
        title = f"{count} dead letters over time, at most {most:,}{' or more' if most > BUCKET_CAP else ''} a bar"
        return {
            **group._asdict(),
            "count": count,
            "label": " ".join(filter(None, [group.error_type, (group.error or "")[:80]])) or "without an error",
            "query": query,
            "url": filters.with_query(pages.url(self.admin_site, "leasequeue_deadletters_list"), query),
            "sample_url": self._job_url(group.sample_seq),
            "spark": charts.sparkline(group.bars, title),
        }

    def dead_letters(self, request: HttpRequest) -> HttpResponse:
        pages.require(request, "view_job")
        wanted, error = filters.read(request)
        try:
            found = reading.run(dead_page(wanted, after=request.GET.get("after") or None, size=LIST_PAGE))
        except InvalidOption as problem:
            messages.error(request, str(problem))
            return HttpResponseRedirect(filters.with_query(request.path, wanted.query()))
        context = {
            **self._shared(request, wanted, error),
            "dead_letters": [self._dead_letter(row) for row in found.rows],
            "found": found,
            "next_url": self._after(request, wanted, found.next),
            "search": not wanted.indexed,
            "may_edit": pages.allowed(request, "edit_job", "view_payload"),
        }
        return pages.page(
            request,
            self.admin_site,
            "deadletters/list.html",
            context,
            title="List of dead letters",
            crumbs=[pages.Crumb("Dead letters", pages.url(self.admin_site, "leasequeue_deadletters"))],
        )

    def _dead_letter(self, row: DeadRow) -> dict[str, Any]:
        edit = pages.url(self.admin_site, "leasequeue_deadletters_edit", row.seq)
        return {**row._asdict(), "state": row.state, "url": self._job_url(row.seq), "edit_url": edit}

    def _job_url(self, seq: int | None) -> str | None:
        return None if seq is None else pages.url_or_none(self.admin_site, "leasequeue_job_change", seq)

    def _after(self, request: HttpRequest, wanted: DeadFilter, after: str | None, **more: str) -> str | None:
        return None if after is None else filters.with_query(request.path, wanted.query(), after=after, **more)

    def _shared(self, request: HttpRequest, wanted: DeadFilter, error: str) -> dict[str, Any]:
        query = "" if error else wanted.query()
        site = self.admin_site
        return {
            "filter": filters.form(request, wanted, error),
            "saved": filters.saved(request, query),
            "here": request.get_full_path(),
            "empty_word": EMPTY,
            "may": {kind: pages.allowed(request, f"{kind}_job") and not error for kind in KINDS},
            "may_any": not error and any(pages.allowed(request, f"{kind}_job") for kind in KINDS),
            "groups_url": filters.with_query(pages.url(site, "leasequeue_deadletters"), query),
            "list_url": filters.with_query(pages.url(site, "leasequeue_deadletters_list"), query),
            "act_url": pages.url(site, "leasequeue_deadletters_act"),
            "save_url": pages.url(site, "leasequeue_deadletters_filters"),
            "reset_url": request.path,
            "exports": [
                (words, filters.with_query(pages.url(site, "leasequeue_deadletters_export"), query, format=kind))
                for words, kind in (("CSV", "csv"), ("JSON Lines", "jsonl"))
            ]
            if not error
            else [],
            "operations_url": pages.url(site, "leasequeue_bulkoperation_changelist"),
        }

    def export(self, request: HttpRequest) -> HttpResponseBase:
        """Download everything that a filter matches now."""
        pages.require(request, "view_job")
        wanted, error = filters.read(request)
        if error:
            messages.error(request, error)
            return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_deadletters"))
        try:
            kind = exporting.check_kind(request.GET.get("format", "csv"))
        except InvalidOption as problem:
            raise Http404(str(problem)) from problem
        frozen = wanted.frozen(engine.clock.now())
        project, queue = wanted.project or "", wanted.queue or ""
        audit.record(request, "export", project=project, queue=queue, filters=frozen.query(), detail={"format": kind})
        values = pages.allowed(request, "view_payload")
        rows = exporting.dead_letters(frozen, values=values, using=reading.alias())
        return audit.download(lambda: exporting.lines(rows, exporting.COLUMNS, kind), kind, "dead-letters")

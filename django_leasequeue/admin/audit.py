"""The audit: a line for each action of a user of the pages, the list of all lines, and their export."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..engine.audit import Actor, write
from ..engine.dead import export as exporting
from ..engine.dead.redaction import HIDDEN
from ..exceptions import InvalidOption
from ..models import OperatorAction
from ..templatetags.leasequeue_admin import link
from . import filters, pages, reading
from .pages import ListAdmin, column, moment_of

#: Lines of Django's log that one page looks at and shows: it has no index of ours.
LOOKED_AT, SHOWN = 1_000, 50
#: Lines of an export that are read at once, and jobs of a line that are named.
EXPORTED_AT_ONCE, _NAMED = 500, 5
#: Kinds of exports in words.
EXPORTS = {"CSV": "csv", "JSON Lines": "jsonl"}
COLUMNS = (
    "id", "at", "user_id", "username", "source", "action", "project", "queue", "seqs", "filters", "counts", "reason",
    "operation_id", "detail",
)  # fmt: skip


def actor(request: HttpRequest) -> Actor:
    """Return the user of a request, as the audit names them."""
    return Actor("admin", str(request.user.pk), request.user.get_username())


def record(request: HttpRequest, action: str, *, obj: models.Model | None = None, **facts: Any) -> OperatorAction:
    """Write what the user of a request did: a line of the audit, and one of Django's own log."""
    line = write(action, actor(request), **{"using": reading.alias(), **facts})
    assert request.user.pk is not None, "pages of the admin are for users who are signed in"
    about = obj if obj is not None else line
    words = [action]
    if line.seqs:
        words.append(f"jobs {', '.join(map(str, line.seqs[:10]))}{', …' if len(line.seqs) > 10 else ''}")
    elif line.queue:
        words.append(f"queue {line.queue}")
    words += [f"{name} {value}" for name, value in line.counts.items()]
    if line.reason:
        words.append(f"reason: {line.reason[:200]}")
    LogEntry.objects.create(
        user_id=request.user.pk,
        content_type_id=ContentType.objects.get_for_model(about, for_concrete_model=False).pk,
        object_id=str(about.pk),
        object_repr=str(about)[:200],
        action_flag=CHANGE,
        change_message="; ".join(words),
    )
    return line


def download(rows: Iterable[dict[str, Any]], columns: Sequence[str], kind: str, name: str) -> StreamingHttpResponse:
    """Return a streamed download."""
    lines = exporting.lines(rows, columns, kind)
    # The names and the first row are made before the answer begins: it can still say that the database is away.
    first = list(islice(lines, 2))
    answer = StreamingHttpResponse(chain(first, lines), content_type=exporting.KINDS[kind])
    answer["Content-Disposition"] = f'attachment; filename="{name}.{kind}"'
    answer["Cache-Control"] = "no-store"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


#: What actions on other things than jobs and queues are about: the end of their names, the word, the field of detail.
_KINDS = (
    ("_key", gettext_lazy("key"), "name"),
    ("_limit", gettext_lazy("limit"), "limit"),
    ("_recurring", gettext_lazy("recurring task"), "name"),
    ("_task", gettext_lazy("task"), "name"),
    ("_workflow", gettext_lazy("workflow"), "name"),
    ("_worker", gettext_lazy("worker"), "node"),
    ("emit", gettext_lazy("event"), "event"),
)


def object_of(line: OperatorAction) -> str:
    """Return what a line is about, in words; empty where jobs, a queue or a filter say it."""
    for end, word, field in _KINDS:
        if line.action.endswith(end):
            own = line.detail.get("prefix") if end == "_key" else line.detail.get("workflow")
            return " ".join(filter(None, (str(word), line.detail.get(field), f"({own})" if own else "")))
    return ""


def differences(line: OperatorAction) -> list[tuple[str, str, str]]:
    """Return what a line changed: name, before, after, as text; of hidden values only that they did."""
    found = []
    for name, values in line.detail.get("changed", {}).items():
        pair = values if isinstance(values, list) and len(values) == 2 else ["", _("changed")]
        before, after = (value if isinstance(value, str) else json.dumps(value) for value in pair)
        found.append((name, before, after))
    return found


def changes(form: forms.ModelForm[Any], hidden: Collection[str] = ()) -> dict[str, list[Any]]:
    """Return what a form changes, as a line of the audit keeps it: field, before and after."""

    def plain(value: Any) -> Any:
        return value.isoformat() if isinstance(value, datetime) else value

    return {
        name: ["changed"] if name in hidden else [plain(form.initial.get(name)), plain(form.cleaned_data.get(name))]
        for name in form.changed_data
    }


def _who(line: OperatorAction) -> SafeString:
    source = "" if line.source == "admin" else _("by {source}").format(source=line.source)
    return format_html("{} <small>{}</small>", line.username, source)


def _counted(line: OperatorAction) -> str:
    return ", ".join(f"{_(name)} {value}" for name, value in line.counts.items())


def _where(line: OperatorAction) -> str:
    queue, to = f"{line.project}/{line.queue}" if line.project else line.queue, line.detail.get("to")
    return _("{queue} to {target}").format(queue=queue, target=to) if to and line.action != "edit" else queue


@admin.register(OperatorAction)
class OperatorActionAdmin(ListAdmin[OperatorAction]):
    """Every line, read only for every user, with Django's own log below."""

    change_list_template = "admin/leasequeue/audit.html"
    list_display = [
        moment_of("at", gettext_lazy("when")),
        "who",
        "what",
        "where",
        "about",
        "short",
        "counted",
        "reason",
    ]
    search_fields = ["=username", "=action", "=queue"]
    ordering = ["-pk"]
    fields = ["at", "who", "what", "where", "about", "counted", "reason", "changes"]
    readonly_fields = ["who", "what", "where", "about", "counted", "changes"]
    who = staticmethod(column(gettext_lazy("who"), _who, "username"))
    where = staticmethod(column(gettext_lazy("queue"), _where, "queue"))
    counted = staticmethod(column(gettext_lazy("counts"), _counted))

    def get_urls(self) -> list[URLPattern]:
        export = self.view(self.export, "view_operatoraction")
        return [path("export/", export, name="leasequeue_operatoraction_export"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[OperatorAction]:
        found = super().get_queryset(request)
        # The columns that show a line know nothing of who looks at it.
        see = pages.allowed(request, "view_payload")
        return found.annotate(see=models.Value(see, models.BooleanField()))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        pages.require(request, "view_operatoraction")
        url, query = self.url("leasequeue_operatoraction_export"), request.GET.urlencode()
        links = [
            (_("Export {words}").format(words=words), filters.with_query(url, query, format=kind))
            for words, kind in EXPORTS.items()
        ]
        return super().changelist_view(request, {"links": links, "others": _django_log(), **(extra_context or {})})

    @admin.display(description=gettext_lazy("what"), ordering="action")
    def what(self, line: OperatorAction) -> SafeString:
        if not line.operation_id:
            return format_html("{}", line.action)
        address = self.url_or_none("leasequeue_bulkoperation_change", line.operation_id)
        text = _("operation {number}").format(number=line.operation_id)
        return format_html("{} {}", line.action, link(text, address))

    @admin.display(description=gettext_lazy("object"))
    def about(self, line: Any) -> SafeString:
        jobs = format_html_join(" ", "{}", ((self.job_link(seq),) for seq in line.seqs[:_NAMED]))
        more = _("and {number} more").format(number=len(line.seqs) - _NAMED) if len(line.seqs) > _NAMED else ""
        text = filters.shown(line.filters, values=line.see)
        cut = format_html(' <span class="lq-cut" title="{}">{:.120}</span>', text, text) if text else ""
        return format_html("{} {} {}{}", object_of(line), jobs, more, cut)

    @admin.display(description=gettext_lazy("what changed"))
    def short(self, line: Any) -> SafeString:
        found = format_html_join(", ", "{}: {} → {}", differences(line)[:_NAMED])
        return format_html('<span class="lq-lines">{}</span>', found) if found else found

    @admin.display(description=gettext_lazy("what changed"))
    def changes(self, line: Any) -> SafeString | str:
        head = format_html("<tr><th>{}</th><th>{}</th><th>{}</th></tr>", _("what"), _("before"), _("after"))
        body = format_html_join("", "<tr><th scope=row>{}</th><td>{}</td><td>{}</td></tr>", differences(line))
        table = format_html('<table class="lq-differences">{}{}</table>', head, body) if body else ""
        lines = line.detail.get("difference", [])
        if lines and not line.see:
            return HIDDEN
        return format_html("{}<pre>{}</pre>", table, "\n".join(lines)) if lines else table

    def export(self, request: HttpRequest) -> HttpResponseBase:
        query = request.GET.copy()
        try:
            kind = exporting.check_kind(query.pop("format", ["csv"])[-1])
        except InvalidOption as problem:
            raise Http404(str(problem)) from problem
        request.GET = query  # type: ignore[assignment]  # what is left is the list's
        try:
            wanted = self.get_changelist_instance(request).get_queryset(request).order_by("-pk")
        except IncorrectLookupParameters as problem:
            raise Http404("The list has no such filter.") from problem
        record(request, "audit.export", detail={"format": kind})
        values = pages.allowed(request, "view_payload")

        def rows() -> Iterator[dict[str, Any]]:
            # Page by page: a cursor on the server would stay open when the rest is not read.
            found = wanted
            while page := list(found.values(*COLUMNS)[:EXPORTED_AT_ONCE]):
                for row in page:
                    if not values:
                        row["detail"].pop("difference", None)
                    row["filters"] = filters.shown(row["filters"], values=values)
                    yield row
                found = wanted.filter(pk__lt=page[-1]["id"])

        return download(rows(), COLUMNS, kind, "audit")


def _django_log() -> list[LogEntry]:
    """Return the newest entries of Django's log about this app that the audit does not hold itself."""
    kinds = ContentType.objects.filter(app_label="leasequeue")
    ours = {kind.pk for kind in kinds if kind.model not in ("operatoraction", "bulkoperation")}
    newest = LogEntry.objects.select_related("user", "content_type").order_by("-pk")[:LOOKED_AT]
    return [entry for entry in newest if entry.content_type_id in ours][:SHOWN]

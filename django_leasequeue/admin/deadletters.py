"""Dead letters in the admin: groups, lists, exports, saved filters, and what is done with them by a confirmed form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.core import signing
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import engine
from ..engine.dead import export as exporting
from ..engine.dead.action import CONFLICTS, KINDS, REDRIVE, check_action
from ..engine.dead.action import act as act_at_once
from ..engine.dead.bulkoperation import MAX_SELECTION, Asked, start
from ..engine.dead.filter import FIELDS, DeadFilter
from ..engine.dead.triage import BUCKET_CAP, MAX_COUNTED, DeadGroup, Preview, dead_groups, dead_page, preview
from ..engine.queues import routing
from ..exceptions import InvalidOption, LeaseQueueError, OperationActive
from ..metrics import charts
from ..models import DeadLetter
from ..templatetags.leasequeue_admin import count, or_more
from . import audit, deadedit, filters, pages, reading

GROUPS_PAGE, LIST_PAGE = 20, 50
_CRUMBS = [(gettext_lazy("Dead letters"), "leasequeue_deadletters")]
TITLES = {
    "retry": gettext_lazy("Retry dead letters"),
    "redrive": gettext_lazy("Redrive dead letters"),
    "discard": gettext_lazy("Discard dead letters"),
}
#: Above so many jobs a person types what they do: the phrase, in the language of the page.
TYPED = 1_000
_PHRASES = {
    "retry": gettext_lazy("retry {number}"),
    "redrive": gettext_lazy("redrive {number}"),
    "discard": gettext_lazy("discard {number}"),
}
_SALT = "django_leasequeue.admin.deadletters"


def _read(request: HttpRequest, kind: str) -> Asked:
    wanted, error = filters.read(request, request.POST.get("filter", ""))
    if error:
        raise InvalidOption(error)
    seqs: list[int] | None = None
    scope = request.POST.get("scope", "selection")
    if scope == "selection":
        texts = request.POST.getlist("seq")
        if not texts:
            raise InvalidOption(_("No job is selected: tick some, or choose everything that the filter matches."))
        if len(texts) > MAX_SELECTION or not all(text.isdecimal() and len(text) < 19 for text in texts):
            raise InvalidOption(_("A selection has at most {most} jobs.").format(most=count(MAX_SELECTION)))
        seqs = sorted({int(text) for text in texts})
        wanted = DeadFilter(project=wanted.project, queue=wanted.queue)
    elif scope != "filter":
        raise InvalidOption(_("Choose the selected jobs, or everything that the filter matches."))
    to = request.POST.get("to", "").strip() or None
    return Asked(
        kind, wanted, seqs, to if kind == REDRIVE else None, None, 0, request.POST.get("reason", "").strip(),
        None, request.POST.get("from_step", "").strip() or None,
    )  # fmt: skip


def _pace(request: HttpRequest) -> tuple[float | None, int]:
    texts = [request.POST.get(name, "").strip().replace(",", ".") for name in ("rate", "jitter")]
    try:
        rate, jitter = (float(text) if text else None for text in texts)
    except ValueError as error:
        raise InvalidOption(_("Rate (jobs a second) and jitter (seconds) are numbers, or empty.")) from error
    if jitter is not None and not 0 <= jitter <= 86_400:
        raise InvalidOption(_("Jitter takes 0 to {most} seconds.").format(most=count(86_400)))
    return rate, round((jitter or 0) * 1_000)


def phrase(kind: str, found: Preview) -> str | None:
    """Return what a person has to type before so much is done; ``None`` where no typing is needed."""
    if found.matches <= TYPED and not found.capped:
        return None
    number = _("{number} or more") if found.capped else "{number}"
    return _PHRASES[kind].format(number=number.format(number=found.matches))


def _what(asked: Asked) -> str:
    """Return a mark of what is done with which dead letters."""
    what = json.dumps([asked.kind, asked.wanted.query(), asked.seqs])
    return hashlib.sha256(what.encode()).hexdigest()


def _seal(asked: Asked, found: Preview) -> str:
    """Return what the confirmation page showed, signed: what it was for, when it looked, and how many it counted."""
    return signing.dumps([_what(asked), found.at.isoformat(), found.matches, found.capped], salt=_SALT)


def _shown(request: HttpRequest, asked: Asked) -> Preview:
    """Return what the confirmation page showed for exactly this; nothing else is done."""
    try:
        what, at, matches, capped = signing.loads(request.POST.get("shown", ""), salt=_SALT)
    except signing.BadSignature:
        what = None
    if what != _what(asked):
        raise InvalidOption(_("This is not what the confirmation page showed: look at it again."))
    return Preview(datetime.fromisoformat(at), matches, capped)


@admin.register(DeadLetter)
class DeadLetterAdmin(pages.ReadOnly, pages.PageAdmin[DeadLetter]):
    """Its pages are its own: nothing here goes through the model."""

    permission = "view_job"

    def get_urls(self) -> list[URLPattern]:
        groups = self.view(partial(self._filtered, self.groups), "view_job", takes=(*FIELDS, "sort", "after"))
        listed = self.view(partial(self._filtered, self.dead_letters), "view_job", takes=(*FIELDS, "after"))
        exported = self.view(self.export, "view_job", takes=(*FIELDS, "format"))
        saving = partial(filters.change_saved, self, page="deadletters", check=filters.checked)
        editing = self.view(partial(deadedit.edit, self), "view_job", "view_payload", "edit_job")
        return [
            path("", groups, name="leasequeue_deadletters"),
            # The name that the admin's start page looks for.
            path("", groups, name="leasequeue_deadletter_changelist"),
            path("list/", listed, name="leasequeue_deadletters_list"),
            path("act/", self.act_view(self.act), name="leasequeue_deadletters_act"),
            path("export/", exported, name="leasequeue_deadletters_export"),
            path("filters/", self.act_view(saving), name="leasequeue_deadletters_filters"),
            path("<int:seq>/edit/", editing, name="leasequeue_deadletters_edit"),
        ]

    def _filtered(self, page: Callable[[HttpRequest, DeadFilter], HttpResponse], request: HttpRequest) -> HttpResponse:
        """Answer with a page of what the filter of the address wants; say what is wrong with that, or its cursor."""
        wanted, error = filters.read(request)
        if error:
            context = {"filter": filters.form(request, DeadFilter(), error), "saved": filters.saved(request)}
            title = _("Dead letters")
            return self.page(request, "deadletters/refused.html", context, title=title, crumbs=_CRUMBS, status=400)
        try:
            return page(request, wanted)
        except InvalidOption as problem:  # the cursor
            messages.error(request, str(problem))
            return HttpResponseRedirect(filters.with_query(request.path, wanted.query()))

    def groups(self, request: HttpRequest, wanted: DeadFilter) -> HttpResponse:
        largest = request.GET.get("sort") == "largest"
        sorting = {"sort": "largest"} if largest else {}
        after = request.GET.get("after") or None
        found = reading.run(dead_groups(wanted, after=after, size=GROUPS_PAGE, largest=largest))
        context = {
            **self._shared(request, wanted),
            "groups": [self._group(request, wanted, group) for group in found.groups],
            "found": found,
            "largest": largest,
            "largest_url": filters.with_query(request.path, wanted.query(), sort="largest"),
            "newest_url": filters.with_query(request.path, wanted.query()),
            "most_counted": MAX_COUNTED,
            "next_url": self._after(request, wanted, found.next, **sorting),
            "search": not wanted.indexed,
        }
        return self.page(request, "deadletters/groups.html", context, title=_("Dead letters"))

    def _group(self, request: HttpRequest, wanted: DeadFilter, group: DeadGroup) -> dict[str, Any]:
        query = wanted.query(project=group.project, queue=group.queue, fingerprint=group.fingerprint)
        number, most = f"{count(group.dead_letters)}{'+' if group.capped else ''}", max(group.bars, default=0)
        title = _("{number} dead letters over time, at most {most} a bar").format(
            number=number, most=or_more(most, most > BUCKET_CAP)
        )
        return {
            **group._asdict(),
            "count": number,
            "label": " ".join(filter(None, [group.error_type, (group.error or "")[:80]])) or _("without an error"),
            "query": query,
            "url": filters.with_query(self.url("leasequeue_deadletters_list"), query),
            "sample_url": None if group.sample_seq is None else self.job_url(group.sample_seq),
            "spark": charts.sparkline(group.bars, title),
        }

    def dead_letters(self, request: HttpRequest, wanted: DeadFilter) -> HttpResponse:
        found = reading.run(dead_page(wanted, after=request.GET.get("after") or None, size=LIST_PAGE))
        context = {
            **self._shared(request, wanted),
            "dead_letters": [{**row._asdict(), "state": row.state, "url": self.job_url(row.seq)} for row in found.rows],
            "found": found,
            "next_url": self._after(request, wanted, found.next),
            "search": not wanted.indexed,
        }
        title = _("List of dead letters")
        return self.page(request, "deadletters/list.html", context, title=title, crumbs=_CRUMBS)

    def _after(self, request: HttpRequest, wanted: DeadFilter, after: str | None, **more: str) -> str | None:
        return None if after is None else filters.with_query(request.path, wanted.query(), after=after, **more)

    def _shared(self, request: HttpRequest, wanted: DeadFilter) -> dict[str, Any]:
        query = wanted.query()
        may = {kind: pages.allowed(request, f"{kind}_job") for kind in KINDS}
        export = self.url("leasequeue_deadletters_export")
        return {
            "filter": filters.form(request, wanted),
            "saved": filters.saved(request),
            "may": may,
            "may_any": any(may.values()),
            "groups_url": filters.with_query(self.url("leasequeue_deadletters"), query),
            "list_url": filters.with_query(self.url("leasequeue_deadletters_list"), query),
            "exports": [
                (words, filters.with_query(export, query, format=kind)) for words, kind in audit.EXPORTS.items()
            ],
        }

    def export(self, request: HttpRequest) -> HttpResponseBase:
        wanted, error = filters.read(request)
        if error:
            messages.error(request, error)
            return self.redirect("leasequeue_deadletters")
        try:
            kind = exporting.check_kind(request.GET.get("format", "csv"))
        except InvalidOption as problem:
            raise Http404(str(problem)) from problem
        frozen = wanted.frozen(engine.clock.now())
        project, queue = wanted.project or "", wanted.queue or ""
        audit.record(request, "export", project=project, queue=queue, filters=frozen.query(), detail={"format": kind})
        values = pages.allowed(request, "view_payload")
        rows = exporting.dead_letters(frozen, values=values, using=reading.alias())
        return audit.download(rows, exporting.COLUMNS, kind, "dead-letters")

    def act(self, request: HttpRequest) -> HttpResponse:
        """Answer a form: with the confirmation page, or by doing it and going back or to the operation."""
        kind = request.POST.get("action", "")
        if kind not in KINDS:
            messages.error(request, _("Choose what to do: retry, redrive or discard."))
            return HttpResponseRedirect(self.back(request))
        pages.require(request, "view_job", f"{kind}_job")
        try:
            asked = _read(request, kind)
        except InvalidOption as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(self.back(request))
        if not request.POST.get("confirmed"):
            return self._confirm(request, asked, [])
        try:
            check_action(kind, asked.to, asked.reason, asked.from_step)
            routing.check_redrive(asked.wanted.project or "", asked.to, reading.alias())
            rate, jitter_ms = _pace(request)
            asked = asked._replace(rate=rate, jitter_ms=jitter_ms)
            if asked.seqs is not None and len(asked.seqs) == 1:
                return self._one(request, asked)
            return self._start(request, asked)
        except OperationActive as error:
            messages.error(request, str(error))
            return self.redirect("leasequeue_bulkoperation_change", error.operation)
        except LeaseQueueError as error:
            return self._confirm(request, asked, [str(error)])

    def _confirm(self, request: HttpRequest, asked: Asked, errors: list[str]) -> HttpResponse:
        found = reading.run(preview(asked.wanted, seqs=asked.seqs))
        frozen = asked.wanted.frozen(found.at)
        lines = []
        if asked.kind == REDRIVE:
            lines = reading.run(engine.list_queues(project=asked.wanted.project or "", size=reading.MAX_NAMES))
        typed = ("to", "rate", "jitter", "reason", "from_step", "typed")
        context: dict[str, Any] = {
            "asked": asked,
            "found": found,
            "count": or_more(found.matches, found.capped),
            "words": frozen.words() if asked.seqs is None else [],
            "filter_query": asked.wanted.query(),
            "shown": _seal(asked, found),
            "phrase": phrase(asked.kind, found),
            "targets": [line.name for line in lines if line.type == "queue"],
            "values": {name: request.POST.get(name, "") for name in typed},
            "errors": errors,
            "next": self.back(request),
            "samples": [{**row._asdict(), "url": self.job_url(row.seq)} for row in found.samples],
        }
        title, status = TITLES[asked.kind], 400 if errors else 200
        return self.page(request, "deadletters/confirm.html", context, title=title, crumbs=_CRUMBS, status=status)

    def _one(self, request: HttpRequest, asked: Asked) -> HttpResponse:
        assert asked.seqs is not None
        (seq,) = asked.seqs
        if "shown" in request.POST:  # the page of a job asks for no confirmation of a retry
            asked = asked._replace(at=_shown(request, asked).at)
        with transaction.atomic(using=reading.alias()):
            how: Any = {"until": asked.at, "to": asked.to, "reason": asked.reason, "from_step": asked.from_step}
            done = reading.run(act_at_once(asked.kind, [seq], jitter_ms=asked.jitter_ms, **how))
            if not done.conflicts:
                facts = asked.facts({"to": asked.to} if asked.to else {})
                audit.record(request, asked.kind, seqs=[seq], counts={"done": done.done}, **facts)
        if done.conflicts:
            why = _(CONFLICTS[done.conflicts[0][1]])
            messages.error(request, _("Job {job} was left alone: {why}.").format(job=seq, why=why))
        else:
            words = {
                "retry": _("Job {job} is ready again."),
                "redrive": _("Job {job} is in the queue {queue}."),
                "discard": _("Job {job} is discarded."),
            }
            messages.success(request, words[asked.kind].format(job=seq, queue=asked.to))
        return HttpResponseRedirect(self.back(request))

    def _start(self, request: HttpRequest, asked: Asked) -> HttpResponse:
        """Start a bulk operation over what the confirmation page showed."""
        found = _shown(request, asked)
        if not found.matches and not found.capped:
            raise InvalidOption(_("Nothing matches."))
        words = phrase(asked.kind, found)
        if words is not None and " ".join(request.POST.get("typed", "").split()).lower() != words.lower():
            raise InvalidOption(_("This is for many jobs: type “{phrase}”, exactly as shown.").format(phrase=words))
        asked = asked._replace(at=found.at)
        detail = {"to": asked.to, "rate": asked.rate, "jitter_ms": asked.jitter_ms}
        record = partial(audit.record, request)
        number = start(asked, found, audit.actor(request), record, reading.alias(), detail)
        messages.success(request, _("Operation {number} is started.").format(number=number))
        return self.redirect("leasequeue_bulkoperation_change", number, next=self.back(request))

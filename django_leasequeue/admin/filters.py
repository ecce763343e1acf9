"""The filter of dead letters in the pages: reading it from an address, its form, saved filters.

And the text of a search for jobs: as it is compared with payloads, and not with what is hidden of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from ..engine import codec
from ..engine.dead.filter import EMPTY, FIELDS, MAX_TESTS, DeadFilter, from_query
from ..engine.dead.redaction import HIDDEN, readable, redact
from ..engine.limits import seq_of
from ..exceptions import InvalidOption
from ..models import SavedFilter, StoredJob
from ..models.base import AsWritten
from . import pages, rates, reading

if TYPE_CHECKING:
    from .job_list import JobHit

#: Filters that one person may save, and shared ones that are shown.
MAX_SAVED = 100


def shown(query: str, *, values: bool) -> str:
    """Return a stored filter as a user may see it who sees payloads or not: its tests tell about their values."""
    if values or "payload" not in query:
        return query
    pairs = parse_qsl(query, keep_blank_values=True)
    return urlencode([(name, HIDDEN if name == "payload" else value) for name, value in pairs])


def read(request: HttpRequest, query: str | None = None) -> tuple[DeadFilter, str]:
    """Return the filter that an address (or a form's hidden field) says, and what is wrong with it.

    With an error the filter lets everything through, and nothing may be shown or done with it. A test of the payload
    tells about its values: it needs the permission to see them.
    """
    if query is None:
        query = urlencode([(name, value) for name in FIELDS for value in request.GET.getlist(name)])
    try:
        wanted = from_query(query)
    except InvalidOption as error:
        return DeadFilter(), str(error)
    if wanted.payload and not pages.allowed(request, "view_payload"):
        return DeadFilter(), _("You may not see payloads, so you cannot search in them.")
    return wanted, ""


def checked(request: HttpRequest, query: str) -> tuple[str, str]:
    """Return a filter of dead letters as it is saved, and what is wrong with it."""
    wanted, error = read(request, query)
    return wanted.query(), error


def form(request: HttpRequest, wanted: DeadFilter, error: str = "") -> dict[str, Any]:
    """Return what the form of a filter needs; after an error it shows what was typed."""
    given = parse_qs(request.META.get("QUERY_STRING", ""), max_num_fields=200) if error else {}

    def value(name: str, own: str | None) -> str:
        if error:
            return given.get(name, [""])[-1]
        return "" if own is None else (own or EMPTY)

    def at(name: str) -> str:
        own = getattr(wanted, name)
        return value(name, "" if own is None else own.isoformat().replace("+00:00", "Z")) if error or own else ""

    tasks, tags = reading.offered()
    # Name, label, value, an example, and what can be chosen.
    fields: list[tuple[str, str, str, str, list[str]]] = [
        ("queue", _("Queue"), value("queue", wanted.queue), _("any"), reading.queue_names(wanted.project or "")),
        ("task", _("Task"), value("task", wanted.task), _("any"), tasks),
        ("tag", _("Tag"), value("tag", wanted.tag), _("any"), tags),
        ("text", _("Text"), value("text", wanted.text), _("part of the error or key"), []),
    ]
    rare = [
        ("since", _("Died since"), at("since"), "2h, 7d, 2026-11-20T18:30"),
        ("until", _("Died until"), at("until"), "30min"),
        ("deliveries", _("Deliveries"), value("deliveries", wanted.deliveries or None), "3, >=3"),
        ("fingerprint", _("Fingerprint"), value("fingerprint", wanted.fingerprint), ""),
        ("project", _("Project"), value("project", wanted.project), _("- for none")),
    ]
    tests = given.get("payload", []) if error else [str(test) for test in wanted.payload]
    more = tests if len(tests) >= MAX_TESTS else [*tests, ""]
    ranges, rest = [], wanted.query(since=None, until=None)
    for name, since in rates.SINCE.items():
        address = with_query("", rest, **({"since": since} if since else {})) or "?"
        ranges.append((_(name), address, since == request.GET.get("since", "")))
    return {
        "fields": fields,
        "rare": rare,
        "rare_used": any(typed for name, _, typed, _ in rare if name != "since") or bool(tests),
        "ranges": ranges,
        "payload": more if pages.allowed(request, "view_payload") else [],
        "error": error,
        "query": "" if error else wanted.query(),
        "empty": wanted.empty and not error,
    }


def saved(request: HttpRequest, page: str = "deadletters") -> dict[str, list[SavedFilter]]:
    """Return the saved filters of a page that this user may use: their own, and those that others share."""
    owner = str(request.user.pk)
    may = SavedFilter.objects.filter(Q(owner=owner) | Q(shared=True), page=page)
    found = may.order_by("name")[: 2 * MAX_SAVED]
    own, others = ([item for item in found if (item.owner == owner) is wanted] for wanted in (True, False))
    return {"own": own, "others": others}


def change_saved(
    admin: pages.ModelAdmin[Any], request: HttpRequest, page: str, check: Callable[[HttpRequest, str], tuple[str, str]]
) -> HttpResponse:
    """Save a filter of a page under a name, or forget one (POST); ``check`` returns the query, and what is wrong."""
    pages.require(request, "view_job")
    owner = str(request.user.pk)
    back = HttpResponseRedirect(admin.back(request))
    if request.POST.get("forget"):
        gone = SavedFilter.objects.filter(pk=seq_of(request.POST["forget"]) or 0)
        if not request.user.is_superuser:
            gone = gone.filter(owner=owner)
        if gone.delete()[0]:
            messages.success(request, _("The filter is forgotten."))
        else:
            messages.error(request, _("That filter is not yours, or gone already."))
        return back
    name = request.POST.get("name", "").replace("\x00", "").strip()
    query, error = check(request, request.POST.get("filter", ""))
    if not error and not 1 <= len(name) <= 80:
        error = _("The name of a saved filter has 1 to 80 characters.")
    known = SavedFilter.objects.filter(owner=owner)
    if not error and known.exclude(name=name).count() >= MAX_SAVED:
        error = _("You have {number} saved filters: forget one first.").format(number=MAX_SAVED)
    if error:
        messages.error(request, error)
        return back
    shared, owner_name = request.POST.get("shared") == "1", request.user.get_username()[:255]
    values = {"query": query, "shared": shared, "owner_name": owner_name, "page": page}
    SavedFilter.objects.update_or_create(owner=owner, name=name, defaults=values)
    messages.success(request, _("Saved the filter “{name}”.").format(name=name))
    return back


def with_query(address: str, *queries: str, **more: str) -> str:
    """Return an address with query strings and names behind it."""
    query = "&".join(part for part in (*queries, urlencode(more)) if part)
    return f"{address}?{query}" if query else address


def called(text: str | None) -> str | None:
    """Return ``customer=17``, as a list shows an argument, as JSON without spaces; ``None`` where a text is no such."""
    found = re.fullmatch(r"(\w+)\s*=\s*(.+)", text or "")
    if found is None:
        return None
    try:
        value = codec.loads(found[2])
    except ValueError:
        value = found[2]
    pair = f"{codec.dumps(found[1])}:{codec.dumps(value)}"
    return pair.replace(" ", "").replace("}", ",").lower()


def openly(jobs: Sequence[JobHit], text: str | None) -> list[JobHit]:
    """Return the jobs that have the text in a part of the payload that the page shows: a search finds no secrets."""
    if not text:
        return list(jobs)
    stored = StoredJob.objects.using(reading.alias()).filter(pk__in=[job.seq for job in jobs])
    rows = stored.annotate(d=AsWritten("data"), m=AsWritten("meta")).values_list("pk", "d", "m")
    texts = {pk: {"data": data, "meta": meta} for pk, data, meta in rows}
    sought = [each for each in (_packed(text), called(text)) if each]
    return [job for job in jobs if _is_open(job, texts.get(job.seq, {}), sought)]


def _is_open(job: JobHit, texts: Mapping[str, str | None], sought: Sequence[str]) -> bool:
    real = {kind: readable(text) for kind, text in texts.items() if text is not None}
    seen = {kind: redact(value, kind=kind, queue=job.queue, task=job.task) for kind, value in real.items()}
    if seen == real:
        return True
    before, after = ("\n".join(_packed(codec.dumps(each)) for each in values.values()) for values in (real, seen))
    return any(text in after for text in sought) or not any(text in before for text in sought)


def _packed(text: str) -> str:
    """Return a text as the search compares it."""
    return text.lower().replace(" ", "").replace("}", ",")

"""Limits in the admin: what they allow, what waits for them, setting their values, giving them back to the code."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from .. import engine
from ..engine import LimitValues
from ..engine.flow.figures import CAP, KEY_CAP, MAX_KEYS, LimitFigures, allows, busy_keys, changed, list_limits
from ..models import Limit
from . import pages, reading
from .audit import record
from .base import PageAdmin
from .figures import capped
from .limit_form import LimitForm

#: Limits of a page; keys of one that its page shows.
PAGE, MAX_BUSY = 25, 20


@admin.register(Limit)
class LimitAdmin(PageAdmin[Limit]):
    """Limits are made by the first call that names them; here they are looked at and set."""

    def page_urls(self) -> list[URLPattern]:
        """The pages of limits."""
        return [
            path("", self.view(self.changelist), name="leasequeue_limit_changelist"),
            path("<int:pk>/change/", self.view(self.change), name="leasequeue_limit_change"),
        ]

    def changelist(self, request: HttpRequest) -> HttpResponse:
        """The limits by name."""
        pages.require(request, "view_limit")
        project, name = (request.GET.get(key, "").replace("\x00", "")[:1_024] for key in ("project", "after"))
        found = reading.read(list_limits(after=(project, name) if name else None, size=PAGE + 1))
        shown, last = found[:PAGE], found[PAGE - 1] if len(found) > PAGE else None
        context = {
            "lines": [(line, allows(line.values), _figures(line)) for line in shown],
            "first": "?" if name else None,
            "next": None if last is None else f"?{urlencode({'project': last.project, 'after': last.name})}",
        }
        return pages.page(request, self.admin_site, "limits.html", context, title="Limits")

    def change(self, request: HttpRequest, pk: int) -> HttpResponse:
        """One limit and its busiest keys; a POST sets its values, or (``action=reset``) gives it back to the code."""
        pages.require(request, "view_limit", *(("change_limit",) if request.method == "POST" else ()))
        limit = reading.instance(Limit, pk)
        if limit is None:
            raise Http404(f"There is no limit {pk}.")
        values = LimitValues.of(limit)
        form = LimitForm(values, None if request.POST.get("action") == "reset" else request.POST or None)
        if request.method == "POST" and (not form.is_bound or form.is_valid()):
            _set(request, limit, values, form.values, pin=form.is_bound)
            return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_limit_change", pk))
        after = request.GET.get("after", "").replace("\x00", "")[:512]
        busy = reading.read(busy_keys(pk, after=after, most=MAX_BUSY))
        context = {
            "limit": limit,
            "allows": allows(values),
            "busy": busy,
            "keys": [(key.key, capped(key.waiting, KEY_CAP), capped(key.taken, KEY_CAP)) for key in busy.keys],
            "first": "?" if after else None,
            "next": f"?{urlencode({'after': busy.last})}" if busy.more else None,
            "form": form if pages.allowed(request, "change_limit") else None,
        }
        crumbs = [pages.Crumb("Limits", pages.url(self.admin_site, "leasequeue_limit_changelist"))]
        return pages.page(request, self.admin_site, "limit.html", context, title=f"Limit {limit}", crumbs=crumbs)


def _figures(line: LimitFigures) -> tuple[str, str, str]:
    """Return its keys, what waits, and what is taken, in words."""
    taken = "–" if line.concurrency is None else capped(line.taken, CAP)  # noqa: RUF001  (a dash, not a minus)
    return capped(line.keys, MAX_KEYS), capped(line.waiting, CAP), taken


def _set(request: HttpRequest, limit: Limit, before: LimitValues, after: LimitValues, *, pin: bool) -> None:
    with transaction.atomic(using=reading.alias()):
        done = engine.run(engine.set_limits([after], project=limit.project, pin=pin), using=reading.alias())
        if done:
            detail = {"limit": limit.name, "changed": changed(before, after)}
            record(request, "set_limit" if pin else "reset_limit", obj=limit, project=limit.project, detail=detail)
    if not done:
        messages.info(request, "Nothing was changed.")
    elif pin:
        words = f"The limit {limit} is set: {allows(after)}. The code's values wait until it is given back."
        messages.success(request, words)
    else:
        messages.success(request, f"The limit {limit} is given back: the next call that names it sets it.")

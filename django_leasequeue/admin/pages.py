"""The frame of every page: navigation, permissions, and the answer while the database is away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple
from urllib.parse import urlencode

import django
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse, TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..engine.outage import Outage, passes
from ..engine.queues import routing
from ..exceptions import LargeStorageError
from . import reading

#: Since Django 6.1 the admin's breadcrumbs are a list.
CRUMBS_ARE_A_LIST = django.VERSION >= (6, 1)

_outage = Outage(
    logging.getLogger("django_leasequeue.admin"), "The database is away: pages are answered 503", "The database is back"
)


class Crumb(NamedTuple):
    """A step of the way to a page."""

    label: str
    url: str


class Item(NamedTuple):
    """An entry of the navigation."""

    label: str
    url: str
    current: bool


#: The pages by name, the permission that shows each.
_NAVIGATION = (
    ("Overview", "leasequeue_overview", "leasequeue.view_queue"),
    ("Dead letters", "leasequeue_deadletters", "leasequeue.view_job"),
    ("Queues", "leasequeue_queue_changelist", "leasequeue.view_queue"),
    ("Jobs", "leasequeue_job_changelist", "leasequeue.view_job"),
    ("Tasks", "leasequeue_tasks", "leasequeue.view_job"),
    ("Workflows", "leasequeue_workflow_changelist", "leasequeue.view_workflow"),
    ("Limits", "leasequeue_limit_changelist", "leasequeue.view_limit"),
    ("Recurring tasks", "leasequeue_recurringtask_changelist", "leasequeue.view_recurringtask"),
    ("Workers", "leasequeue_worker_changelist", "leasequeue.view_worker"),
    ("Bulk operations", "leasequeue_bulkoperation_changelist", "leasequeue.view_bulkoperation"),
    ("Operator actions", "leasequeue_operatoraction_changelist", "leasequeue.view_operatoraction"),
)


def url(site: AdminSite, name: str, *args: Any) -> str:
    """Return the address of one of our pages on this admin site."""
    return reverse(f"admin:{name}", args=args, current_app=site.name)


def url_or_none(site: AdminSite, name: str, *args: Any) -> str | None:
    """Return the address of a page, or ``None`` where the host took it out of its admin site."""
    try:
        return url(site, name, *args)
    except NoReverseMatch:
        return None


def link(text: object, address: str | None) -> SafeString | str:
    """Return a link, or the text alone where there is no address."""
    return format_html('<a href="{}">{}</a>', address, text) if address else str(text)


def job_link(site: AdminSite, seq: object) -> SafeString | str:
    """Return the number of a job with the way to its page."""
    return link(seq, url_or_none(site, "leasequeue_job_change", seq))


def badge(state: str, text: str = "") -> SafeString:
    """Return a state in its colour, in other words if they are given."""
    return format_html('<span class="lq-state lq-state-{}">{}</span>', state, text or state)


def allowed(request: HttpRequest, *permissions: str) -> bool:
    """Whether the user has all of these permissions (codenames of this app)."""
    return all(request.user.has_perm(f"leasequeue.{name}") for name in permissions)


def require(request: HttpRequest, *permissions: str) -> None:
    """Refuse users who lack one of these permissions (codenames of this app)."""
    if not (request.user.is_active and request.user.is_staff and allowed(request, *permissions)):
        raise PermissionDenied


def action_of(request: HttpRequest, actions: Mapping[str, str], *permissions: str) -> str:
    """Return the ``action`` that a form names, one of ``actions``, if the user has its permission and these."""
    action = request.POST.get("action", "")
    if action not in actions:
        raise Http404
    require(request, *permissions, actions[action])
    return action


def navigation(request: HttpRequest, site: AdminSite) -> list[Item]:
    """Return the pages that this user may see."""
    here = getattr(request.resolver_match, "url_name", "")
    items = []
    for label, name, permission in _NAVIGATION:
        address = url_or_none(site, name) if request.user.has_perm(permission) else None
        if address is not None:
            items.append(Item(label, address, name == here))
    if items and len(aliases := routing.aliases()) > 1:
        for each in aliases:
            address = f"{items[0].url}?{urlencode({reading.SWITCH: each})}"
            items.append(Item(f"Database {each}", address, each == reading.alias()))
    return items


def page(
    request: HttpRequest,
    site: AdminSite,
    template: str,
    context: Mapping[str, Any],
    *,
    title: str,
    crumbs: Sequence[Crumb] = (),
    status: int = 200,
) -> TemplateResponse:
    """Return a page in the frame (``admin/leasequeue/base.html``); nothing of it is kept by caches."""
    request.current_app = site.name
    response = TemplateResponse(
        request,
        f"admin/leasequeue/{template}",
        {
            **site.each_context(request),
            "title": title,
            "crumbs": crumbs,
            "crumbs_are_a_list": CRUMBS_ARE_A_LIST,
            "lq_navigation": navigation(request, site),
            **context,
        },
        status=status,
    )
    response["Cache-Control"] = "no-store"
    return response


def _not_ready(error: Exception) -> HttpResponse:
    """Return the answer while the database is away; raise what is something else."""
    if isinstance(error, LargeStorageError):
        return HttpResponse(f"{error}\n", content_type="text/plain", status=503, headers={"Retry-After": "5"})
    if not passes(error):
        raise error
    _outage.begins("pages", error)
    text = "The database is not reachable or has no free connection. Try again in a moment.\n"
    return HttpResponse(text, content_type="text/plain", status=503, headers={"Retry-After": "5"})


def or_not_ready(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return the view with an answer for the time that the database is away, login and template included."""

    @wraps(view)
    def answer(*args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response = view(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  (what is not of the database is raised again)
            return _not_ready(error)
        if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
            # The page's statements run when it is rendered, after the view.
            response.render = _rendering(response.render)  # type: ignore[method-assign]  # of this response alone
        else:
            _outage.ends("pages")
        return response

    return answer


def _rendering(render: Callable[[], Any]) -> Callable[[], Any]:
    def rendered() -> Any:
        try:
            found = render()
        except Exception as error:  # noqa: BLE001  (what is not of the database is raised again)
            return _not_ready(error)
        _outage.ends("pages")
        return found

    return rendered

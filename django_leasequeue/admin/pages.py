"""What every page of the admin shares: its frame, its navigation, who may see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import django
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse

#: Since Django 6.1 the admin's breadcrumbs are a list.
CRUMBS_ARE_A_LIST = django.VERSION >= (6, 1)


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
    ("Workers", "leasequeue_workers", "leasequeue.view_worker"),
    ("Bulk operations", "leasequeue_operations", "leasequeue.view_bulkoperation"),
    ("Operator actions", "leasequeue_audit", "leasequeue.view_operatoraction"),
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


def allowed(request: HttpRequest, *permissions: str) -> bool:
    """Whether the user has all of these permissions (codenames of this app)."""
    return all(request.user.has_perm(f"leasequeue.{name}") for name in permissions)


def require(request: HttpRequest, *permissions: str) -> None:
    """Let nobody pass who lacks one of these permissions (codenames of this app).

    Raises:
        PermissionDenied: Django answers 403.
    """
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
    """Return a page in the frame (``admin/leasequeue/base.html``); nothing of it is kept by caches.

    Args:
        request: what is answered.
        site: the admin site that it came to.
        template: its name below ``admin/leasequeue/``.
        context: of the template, besides what the frame needs.
        title: heading and window title.
        crumbs: the way to it; the admin's start page comes by itself.
        status: the HTTP status.
    """
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

"""The frame of every page: navigation, permissions, the answer while the database is away, and base classes.

Those are for pages of our own, and for Django's lists and forms of what the engine writes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from urllib.parse import urlencode

import django
from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest, PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.forms.fields import InvalidJSONInput
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse, TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from ..engine.dead.filter import unknown_name
from ..engine.limits import seq_of
from ..engine.outage import Outage, passes
from ..engine.queues import routing
from ..exceptions import LargeStorageError
from ..templatetags.leasequeue_admin import count, link, moment
from . import reading

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Since Django 6.1 the admin's breadcrumbs are a list.
CRUMBS_ARE_A_LIST = django.VERSION >= (6, 1)

_logger = logging.getLogger("django_leasequeue.admin")
_outage = Outage(_logger, "The database is away: pages are answered 503", "The database is back")


#: The pages by name, the permission that shows each.
NAVIGATION: tuple[tuple[StrOrPromise, str, str], ...] = (
    (gettext_lazy("Overview"), "leasequeue_overview", "leasequeue.view_queue"),
    (gettext_lazy("Dead letters"), "leasequeue_deadletters", "leasequeue.view_job"),
    (gettext_lazy("Queues"), "leasequeue_queue_changelist", "leasequeue.view_queue"),
    (gettext_lazy("Jobs"), "leasequeue_job_changelist", "leasequeue.view_job"),
    (gettext_lazy("Tasks"), "leasequeue_tasks", "leasequeue.view_job"),
    (gettext_lazy("Workflows"), "leasequeue_workflow_changelist", "leasequeue.view_workflow"),
    (gettext_lazy("Limits"), "leasequeue_limit_changelist", "leasequeue.view_limit"),
    (gettext_lazy("Recurring tasks"), "leasequeue_recurringtask_changelist", "leasequeue.view_recurringtask"),
    (gettext_lazy("Workers"), "leasequeue_worker_changelist", "leasequeue.view_worker"),
    (gettext_lazy("Bulk operations"), "leasequeue_bulkoperation_changelist", "leasequeue.view_bulkoperation"),
    (gettext_lazy("Operator actions"), "leasequeue_operatoraction_changelist", "leasequeue.view_operatoraction"),
)


class Lists(dict[str, "str | None"]):
    """The address of the list that each figure of a page counts; ``None`` for a user who may not see it."""

    def __missing__(self, name: str) -> None:
        return None


def badge(state: str, text: str = "") -> SafeString:
    """Return a state in its colour, in other words if they are given."""
    return format_html('<span class="lq-state lq-state-{}">{}</span>', state, text or _(state))


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


def or_not_ready(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return the view (or the rendering of its page) with an answer for the time that the database is away."""

    @wraps(view)
    def answer(*args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response = view(*args, **kwargs)
        except Exception as error:
            text = f"{error}\n"
            if not isinstance(error, LargeStorageError):
                if not passes(error):
                    raise
                _outage.begins("pages", error)
                text = _("The database is not reachable or has no free connection. Try again in a moment.") + "\n"
            return HttpResponse(text, content_type="text/plain", status=503, headers={"Retry-After": "5"})
        if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
            # The page's statements run when it is rendered, after the view.
            response.render = or_not_ready(response.render)  # type: ignore[method-assign, assignment]  # of this one alone
        else:
            _outage.ends("pages")
        return response

    return answer


#: Rows of a list that its pages go through.
MAX_ROWS = 10_000

M = TypeVar("M", bound=Model)


class ModelAdmin(admin.ModelAdmin, Generic[M]):
    """Its pages show the chosen database, and answer 503 while it is away."""

    def __init__(self, model: type[M], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        # Translated here and not in the models: migrations keep the English names.
        if not isinstance(self.opts.verbose_name, Promise):
            self.opts.verbose_name = gettext_lazy(str(self.opts.verbose_name))
            self.opts.verbose_name_plural = gettext_lazy(str(self.opts.verbose_name_plural))
            for field in self.opts.local_fields:
                field.verbose_name = gettext_lazy(str(field.verbose_name))

    @property
    def urls(self) -> list[Any]:
        found = self.get_urls()
        for pattern in found:
            pattern.callback = or_not_ready(reading.on_chosen_database(pattern.callback))
        return found

    def view(
        self, page: Callable[..., HttpResponseBase], *permissions: str, takes: Sequence[str] | None = None
    ) -> Callable[..., HttpResponseBase]:
        """Return a page behind the admin's login, for users with these permissions (codenames of this app).

        ``takes``: the names that its query may have; with another one it is refused, for its filter would be ignored.
        """

        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            require(request, *permissions)
            # Names that begin with _ are Django's own.
            given = [name for name in request.GET if not name.startswith("_")]
            if takes is not None and (error := unknown_name(given, takes)):
                context = {"error": error, "without": request.path}
                return self.page(request, "refused.html", context, title=_("This filter is not known"), status=400)
            return page(request, *args, **kwargs)

        return self.admin_site.admin_view(answer)

    def url(self, name: str, /, *args: Any, **query: Any) -> str:
        """Return the address of one of our pages on this admin site."""
        return reverse(f"admin:{name}", args=args, query=query, current_app=self.admin_site.name)

    def url_or_none(self, name: str, /, *args: Any, **query: Any) -> str | None:
        """Return the address of a page, or ``None`` where the host took it out of its admin site."""
        try:
            return self.url(name, *args, **query)
        except NoReverseMatch:
            return None

    def job_url(self, seq: object) -> str | None:
        return self.url_or_none("leasequeue_job_change", seq)

    def job_link(self, seq: object) -> SafeString | str:
        return link(seq, self.job_url(seq))

    def back(self, request: HttpRequest) -> str:
        """Return the address to come back to: the request's ``next`` if it is on this host, else the dead letters."""
        to = request.POST.get("next") or request.GET.get("next") or ""
        if url_has_allowed_host_and_scheme(to, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
            return to
        return self.url("leasequeue_deadletters")

    def redirect(self, name: str, /, *args: Any, **query: Any) -> HttpResponseRedirect:
        return HttpResponseRedirect(self.url(name, *args, **query))

    def navigation(self, request: HttpRequest) -> list[tuple[str, str, bool, str]]:
        """Return the pages that this user may see: label, address, whether it is shown, its name."""
        here = getattr(request.resolver_match, "url_name", "")
        items = [
            (str(label), address, name == here, name)
            for label, name, permission in NAVIGATION
            if request.user.has_perm(permission) and (address := self.url_or_none(name)) is not None
        ]
        if items and len(aliases := routing.aliases()) > 1:
            first = items[0][1]
            for each in aliases:
                address = f"{first}?{urlencode({reading.SWITCH: each})}"
                items.append((_("Database {name}").format(name=each), address, each == reading.alias(), ""))
        return items

    def page(
        self,
        request: HttpRequest,
        template: str,
        context: Mapping[str, Any],
        *,
        title: StrOrPromise,
        crumbs: Sequence[tuple[Any, ...]] = (),
        status: int = 200,
    ) -> TemplateResponse:
        """Return a page in the frame (``admin/leasequeue/base.html``), which caches do not keep.

        ``crumbs`` is the way to it: of each page above it the label, and the name and arguments of its address.
        """
        request.current_app = self.admin_site.name
        frame = {
            **self.admin_site.each_context(request),
            "request": request,  # the admin runs without the context processor for it, too
            "title": title,
            "crumbs": [{"label": label, "url": self.url(*name)} for label, *name in crumbs],
            "crumbs_are_a_list": CRUMBS_ARE_A_LIST,
            "lq_navigation": self.navigation(request),
            "dead_letters_url": self.url_or_none("leasequeue_deadletters") if allowed(request, "view_job") else None,
        }
        response = TemplateResponse(request, f"admin/leasequeue/{template}", {**frame, **context}, status=status)
        response["Cache-Control"] = "no-store"
        return response


class PageAdmin(ModelAdmin[M]):
    """Pages of our own: nothing is added, changed or deleted through Django's forms. ``get_urls`` names them all."""

    def act_view(self, page: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        """Return a page behind the admin's login that takes a POST only."""
        return self.admin_site.admin_view(require_POST(page))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnly:
    """Permissions where no form of Django's changes anything; ``permission`` is the one to look, else the model's."""

    opts: Any
    permission = ""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return allowed(request, self.permission or f"view_{self.opts.model_name}")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_delete_permission = has_change_permission


def column(label: StrOrPromise, value: Callable[[Any], Any], ordering: str | None = None) -> Callable[[Any], Any]:
    """Return a column of a list (or a field of a page): its heading, what a row shows, the field that sorts by it."""

    @admin.display(description=label, ordering=ordering)
    def shown(row: Any) -> Any:
        return value(row)

    return shown


def moment_of(field: str, label: StrOrPromise) -> Callable[[Any], Any]:
    """Return a column with a time, to the millisecond."""
    return column(label, lambda row: moment(getattr(row, field)), field)


def count_of(field: str, label: StrOrPromise) -> Callable[[Any], Any]:
    """Return a column with a number, its thousands apart."""
    return column(label, lambda row: count(getattr(row, field)), field)


class JsonField(forms.JSONField):
    """A field of JSON that says where it is wrong."""

    def to_python(self, value: Any) -> Any:
        try:
            found = super().to_python(value)
            json.dumps(found, ensure_ascii=False).encode()
            return found
        except forms.ValidationError as error:
            # Django raises it while it handles the error that says where.
            raise forms.ValidationError(_("This is not JSON: {error}.").format(error=error.__context__)) from error
        except (RecursionError, ValueError) as error:  # too deep, a number with thousands of digits, half a character
            raise forms.ValidationError(_("This JSON cannot be read: {error}.").format(error=error)) from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        try:
            self.to_python(data)
        except forms.ValidationError:
            return InvalidJSONInput(data)  # shown as it was typed
        return super().bound_data(data, initial)


class BoundedPaginator(Paginator):
    """Counts and shows the first ``MAX_ROWS`` rows: filters lead to the others."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows[:MAX_ROWS].count())

    @property
    def capped(self) -> bool:
        return self.count == MAX_ROWS


class FramedAdmin(ModelAdmin[M]):
    """Django's list and form of a model in our frame; counts are bounded."""

    change_list_template = "admin/leasequeue/change_list.html"
    change_form_template = "admin/leasequeue/change_form.html"
    show_full_result_count = False
    paginator = BoundedPaginator
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    #: Unfold has a button to add a row where this says so.
    show_add_link = True
    #: Seconds after which a list asks for its rows anew; 0: never.
    every: ClassVar[int] = 0

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not all(seq_of(text) for text in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            raise BadRequest(f"{ACTION_CHECKBOX_NAME} must be numbers of rows.")
        title = capfirst(self.opts.verbose_name_plural)
        frame = {"lq_navigation": self.navigation(request), "every": self.every, "title": title}
        return super().changelist_view(request, {**frame, **(extra_context or {})})

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        found = super().get_changelist_instance(request)
        if not found.get_filters_params() and not found.query:
            found.full_result_count = found.result_count  # else Django offers a way to all rows, which are shown
        return found

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        context["lq_navigation"] = self.navigation(request)
        return super().render_change_form(request, context, *args, **kwargs)


class ListAdmin(ReadOnly, FramedAdmin[M]):
    """The list and the page of rows that the engine writes: actions change them, no form does."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        return super().get_queryset(request).using(reading.alias())

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """The audit writes Django's log as well."""

    log_change = log_addition

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """The audit writes Django's log as well."""

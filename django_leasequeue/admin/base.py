"""Base classes: our own pages of a model, and Django's lists and forms of what the engine writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from django import forms
from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_POST

from ..engine import codec
from ..templatetags.leasequeue_admin import count, moment
from . import pages, reading

#: Rows of a list that its pages go through.
MAX_ROWS = 10_000

M = TypeVar("M", bound=Model)

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[M]
else:

    class ModelAdmin(admin.ModelAdmin):
        """Generic for the type checker; its pages show the chosen database, and answer 503 while it is away."""

        def __class_getitem__(cls, _: Any) -> Any:
            return cls

        @property
        def urls(self) -> list[Any]:
            """The pages, each with an answer for the time that the database is away."""
            found = self.get_urls()
            for pattern in found:
                pattern.callback = pages.or_not_ready(reading.on_chosen_database(pattern.callback))
            return found


class PageAdmin(ModelAdmin[M]):
    """Pages of our own: nothing is added, changed or deleted through Django's forms. ``get_urls`` names them all."""

    def view(self, page: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        """Return a page behind the admin's login."""
        return self.admin_site.admin_view(page)

    def act_view(self, page: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        """Return a page behind the admin's login that takes a POST only."""
        return self.view(require_POST(page))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnlyAdmin(PageAdmin[M]):
    """Pages that only show, or have buttons of their own; ``permission`` is the one that shows them."""

    permission: str

    def has_module_permission(self, request: HttpRequest) -> bool:
        return pages.allowed(request, self.permission)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return pages.allowed(request, self.permission)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def column(label: str, value: Callable[[Any], Any], ordering: str | None = None) -> Callable[[Any], Any]:
    """Return a column of a list (or a field of a page): its heading, what a row shows, the field that sorts by it."""

    @admin.display(description=label, ordering=ordering)
    def shown(row: Any) -> Any:
        return value(row)

    return shown


def moment_of(field: str, label: str) -> Callable[[Any], Any]:
    """Return a column with a time, to the millisecond."""
    return column(label, lambda row: moment(getattr(row, field)), field)


def count_of(field: str, label: str = "") -> Callable[[Any], Any]:
    """Return a column with a number, its thousands apart."""
    return column(label or field, lambda row: count(getattr(row, field)), field)


class JsonField(forms.JSONField):
    """A field of JSON that says where it is wrong."""

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except forms.ValidationError as error:
            try:
                codec.loads(value)
            except ValueError as why:
                raise forms.ValidationError(f"This is not JSON: {why}.") from error
            raise


class BoundedPaginator(Paginator):
    """Counts and shows the first ``MAX_ROWS`` rows: filters lead to the others."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows[:MAX_ROWS].count())

    @property
    def capped(self) -> bool:
        """Whether there may be more rows."""
        return self.count == MAX_ROWS


class FramedAdmin(ModelAdmin[M]):
    """Django's list and form of a model in our frame; counts are bounded."""

    change_list_template = "admin/leasequeue/change_list.html"
    change_form_template = "admin/leasequeue/change_form.html"
    show_full_result_count = False
    paginator = BoundedPaginator
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    #: Seconds after which a list asks for its rows anew; 0: never.
    every: ClassVar[int] = 0

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        frame = {"lq_navigation": pages.navigation(request, self.admin_site), "every": self.every}
        return super().changelist_view(request, {**frame, **(extra_context or {})})

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        found = super().get_changelist_instance(request)
        if not found.get_filters_params() and not found.query:
            found.full_result_count = found.result_count  # else Django offers a way to all rows, which are shown
        return found

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        frame = {"lq_navigation": pages.navigation(request, self.admin_site)}
        return super().changeform_view(request, object_id, form_url, {**frame, **(extra_context or {})})


class ListAdmin(FramedAdmin[M]):
    """The list and the page of rows that the engine writes: actions change them, no form does."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        return super().get_queryset(request).using(reading.alias())

    def _may_view(self, request: HttpRequest) -> bool:
        return pages.allowed(request, f"view_{self.opts.model_name}")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self._may_view(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may_view(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

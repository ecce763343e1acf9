"""A model's place in the admin where our own pages stand for Django's forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern
from django.views.decorators.http import require_POST

from . import pages
from .away import or_not_ready

M = TypeVar("M", bound=Model)

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[M]
else:

    class ModelAdmin(admin.ModelAdmin):
        """Generic for the type checker; its pages answer 503 while the database is away."""

        def __class_getitem__(cls, _: Any) -> Any:
            return cls

        @property
        def urls(self) -> list[Any]:
            """The pages, each with an answer for the time that the database is away."""
            found = self.get_urls()
            for pattern in found:
                pattern.callback = or_not_ready(pattern.callback)
            return found


class PageAdmin(ModelAdmin[M]):
    """Nothing is added, changed or deleted through Django's forms; ``page_urls`` are all there is."""

    def page_urls(self) -> list[URLPattern]:
        """The pages; the first is what the admin's start page links to."""
        raise NotImplementedError

    def get_urls(self) -> list[URLPattern]:
        """Only our own pages."""
        return self.page_urls()

    def view(self, page: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        """Return a page behind the admin's login."""
        return self.admin_site.admin_view(page)

    def act_view(self, page: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        """Return a page behind the admin's login that takes a POST only."""
        return self.view(require_POST(page))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """What is added is added by the engine."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What is deleted is deleted by the engine."""
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

"""Limits in the admin: what they allow, what waits for them, setting their values, giving them back to the code."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import engine
from ..engine import LimitValues
from ..engine.flow import figures
from ..exceptions import InvalidOption
from ..models import Limit
from ..templatetags.leasequeue_admin import capped
from . import audit, pages, reading
from .pages import ListAdmin, column, moment_of

#: Keys of a limit that its page shows.
MAX_BUSY = 20


class LimitForm(forms.ModelForm):
    """The values of a limit, checked together as ``engine.set_limits`` does."""

    per = forms.DecimalField(
        required=False,
        decimal_places=3,
        max_digits=9,
        label=gettext_lazy("The time, in seconds"),
        help_text=gettext_lazy("0.1 to 86400"),
        widget=forms.NumberInput({"class": "vIntegerField", "step": "any"}),
    )

    class Meta:
        model = Limit
        fields = ["concurrency", "rate", "burst", "fair"]
        labels = {
            "concurrency": gettext_lazy("Jobs of a key at once"),
            "rate": gettext_lazy("Starts of a key in a time"),
            "burst": gettext_lazy("More starts at once"),
            "fair": gettext_lazy("Keys take turns"),
        }
        help_texts = {
            "concurrency": gettext_lazy("empty: as many as there are"),
            "rate": gettext_lazy("empty: no limit"),
            "burst": gettext_lazy("after a pause, beyond the rate"),
            "fair": gettext_lazy("needs a number of jobs at once"),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: As they are, and what the form says.
        self.before = self.values = LimitValues.of(self.instance)
        if self.before.per_ms is not None:
            self.initial["per"] = f"{self.before.per_ms / 1000:g}"
        if "burst" in self.fields:
            self.fields["burst"].required = False

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if not self.errors:
            per = given["per"]
            per_ms = None if per is None else int(per * 1000)
            burst = given["burst"] = given["burst"] or 0
            name, concurrency, rate = self.before.name, given["concurrency"], given["rate"]
            try:
                self.values = LimitValues(name, concurrency, rate, per_ms, burst, given["fair"])
            except InvalidOption as error:
                raise forms.ValidationError(str(error)) from error
            self.instance.per_ms = per_ms
        return given


class LimitList(ChangeList):
    """Reads the figures of the limits of a page."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        shown = list(self.result_list)
        found = reading.read(figures.list_limits(ids=[limit.pk for limit in shown])) if shown else []
        known = {each.id: each for each in found}
        for limit in shown:
            limit.figures = known.get(limit.pk)
        self.result_list = shown


def _figure(limit: Any, name: str, bound: str) -> str:
    found: figures.LimitFigures | None = limit.figures
    if found is None or (name == "taken" and limit.concurrency is None):
        return "–"  # noqa: RUF001  (a dash, not a minus)
    return capped(getattr(found, name), getattr(figures, bound))


@admin.register(Limit)
class LimitAdmin(ListAdmin[Limit]):
    """Limits are made by the first call that names them; here they are looked at and set."""

    form = LimitForm
    change_form_template = "admin/leasequeue/limit.html"
    list_display = [
        "name", "project", "allows", "set_by",
        column(gettext_lazy("keys"), lambda limit: _figure(limit, "keys", "MAX_KEYS")),
        column(gettext_lazy("waiting"), lambda limit: _figure(limit, "waiting", "CAP")),
        column(gettext_lazy("slots taken"), lambda limit: _figure(limit, "taken", "CAP")),
        moment_of("updated_at", gettext_lazy("changed")),
    ]  # fmt: skip
    search_fields = ["name"]
    ordering = ["project", "name"]
    list_per_page = 25
    every = 10
    actions = ["reset"]
    fields = ["allows", "set_by", "concurrency", "rate", "per", "burst", "fair"]
    readonly_fields = ["allows", "set_by"]
    allows = staticmethod(column(gettext_lazy("allows each key"), lambda limit: figures.allows(LimitValues.of(limit))))
    set_by = staticmethod(
        column(gettext_lazy("set by"), lambda limit: _("an operator") if limit.pinned else _("the code"), "pinned")
    )

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return pages.allowed(request, "view_limit", "change_limit")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return LimitList

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        after = request.GET.get("after", "").replace("\x00", "")[:512]
        busy = reading.read(figures.busy_keys(kwargs["obj"].pk, after=after, most=MAX_BUSY))
        context |= {
            "show_save_and_continue": False,
            "show_save_and_add_another": False,
            "busy": busy,
            "most": figures.KEY_CAP,
            "first": "?" if after else None,
            "next": f"?{urlencode({'after': busy.last})}" if busy.more else None,
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Limit, form: LimitForm, change: bool) -> None:
        with transaction.atomic(using=reading.alias()):
            done = reading.run(engine.set_limits([form.values], project=obj.project))
            if done:
                self._record(request, "set_limit", obj, form.before, form.values)
        text = _("The limit {limit} stays as it is.")
        if done:
            text = _("The limit {limit} is set: {values}. The code's values wait until it is given back.")
        messages.success(request, text.format(limit=obj, values=figures.allows(form.values)))

    def message_user(self, request: HttpRequest, message: Any, *args: Any, **kwargs: Any) -> None:
        """``save_model`` and ``reset`` do."""

    @admin.action(description=gettext_lazy("Give the selected limits back to the code"), permissions=["change"])
    def reset(self, request: HttpRequest, queryset: QuerySet[Limit]) -> None:
        for limit in queryset:
            before = LimitValues.of(limit)
            with transaction.atomic(using=reading.alias()):
                done = reading.run(engine.reset_limit(limit.name, project=limit.project))
                if done:
                    self._record(request, "reset_limit", limit, before, LimitValues.of(done))
            text = _("The limit {limit} has the code's values already.").format(limit=limit)
            messages.success(request, figures.given_back(str(limit), done) if done else text)

    def _record(self, request: HttpRequest, action: str, limit: Limit, before: LimitValues, after: LimitValues) -> None:
        detail = {"limit": limit.name, "changed": figures.changed(before, after)}
        audit.record(request, action, obj=limit, project=limit.project, detail=detail)

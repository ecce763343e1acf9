"""Workers and what each runs now, and API keys, whose secrets are shown once: what operators look after."""

from __future__ import annotations

from itertools import starmap
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.postgres.forms import SimpleArrayField
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..engine.clock import span
from ..http.access import make_token, note, revoke_key, rotate_key
from ..models import ApiKey, ApiScope, Worker
from ..reaper.concerns import seen
from ..templatetags.leasequeue_admin import ago
from . import audit, pages, reading
from .pages import FramedAdmin, ListAdmin, column, count_of, moment_of

#: What a worker has done.
_COUNTS = (
    ("completed", gettext_lazy("completed")),
    ("failed", gettext_lazy("failed")),
    ("retried", gettext_lazy("retried")),
    ("lost", gettext_lazy("lost")),
)
#: Jobs of a worker that the list names.
_RUNNING = 3


def _condition(worker: Worker) -> SafeString:
    """Return its state, as far as it can be believed."""
    if worker.gone:
        return pages.badge("gone", _("not seen for {time}").format(time=span(worker.silent)))
    if worker.stop_requested_at is None:
        return pages.badge(worker.state)
    asked = pages.badge("draining", _("asked to stop {ago}").format(ago=ago(worker.stop_requested_at)))
    return format_html("{} {}", pages.badge(worker.state), asked)


@admin.register(Worker)
class WorkerAdmin(ListAdmin[Worker]):
    """Workers say of themselves that they are there."""

    list_display = [
        "node",
        "condition",
        column(gettext_lazy("queues"), lambda worker: Truncator(", ".join(worker.queues) or _("all")).chars(80)),
        "now",
        *starmap(count_of, _COUNTS),
        "last_seen",
    ]  # fmt: skip
    search_fields = ["node", "host"]
    actions = ["stop"]
    every = 5
    fields = [
        "node", "condition", "host", "pid", "project", "queues", "concurrency", "limits", "since", "last_seen",
        "completed", "failed", "retried", "lost", "runs",
    ]  # fmt: skip
    readonly_fields = ["condition", "limits", "since", "last_seen", "runs"]
    condition = staticmethod(column(gettext_lazy("state"), _condition, "state"))
    last_seen = staticmethod(
        column(gettext_lazy("seen"), lambda worker: _("{time} ago").format(time=span(worker.silent)), "seen_at")
    )
    since = staticmethod(moment_of("started_at", gettext_lazy("since")))

    @admin.display(description=gettext_lazy("limits of queues"))
    def limits(self, worker: Worker) -> str:
        return ", ".join(f"{name}: {most}" for name, most in worker.info.get("limits", {}).items()) or _("none")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return seen(super().get_queryset(request))

    def has_stop_permission(self, request: HttpRequest) -> bool:
        return pages.allowed(request, "stop_worker")

    @admin.display(description=gettext_lazy("running"))
    def now(self, worker: Worker) -> SafeString:
        jobs = [] if worker.gone else worker.running
        rest = _("and {number} more").format(number=len(jobs) - _RUNNING) if len(jobs) > _RUNNING else ""
        share = _("{part} of {all}").format(part=len(jobs), all=worker.concurrency)
        return format_html("{}{}{}", share, self._lines(jobs[:_RUNNING]), rest)

    @admin.display(description=gettext_lazy("runs now"))
    def runs(self, worker: Worker) -> SafeString:
        return self._lines([] if worker.gone else worker.running) or format_html("{}", _("nothing"))

    def _lines(self, jobs: list[dict[str, Any]]) -> SafeString:
        words = {
            "": _("{queue}, for {time}"),
            "apart": _("{queue}, for {time}, a suspect in a process of its own"),
            "alone": _("{queue}, for {time}, a suspect that runs alone"),
        }
        rows = (
            (
                *(self.job_link(job["seq"]), job.get("name") or ""),
                words[job.get("suspect") or ""].format(queue=job["queue"], time=span(job["seconds"])),
            )
            for job in jobs
        )
        return format_html_join("", "<div>{} {} <small>{}</small></div>", rows)

    @admin.action(description=gettext_lazy("Ask the selected workers to stop"), permissions=["stop"])
    def stop(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        asked = 0
        for worker in queryset:
            with transaction.atomic(using=reading.alias()):
                if reading.run(reading.ask_worker_to_stop(worker.pk)):
                    audit.record(request, "stop_worker", obj=worker, detail={"node": worker.node})
                    asked += 1
        text = _(
            "Workers asked to stop: {number}. They claim nothing more and finish their jobs. The others had been asked"
            " before, or are gone."
        )
        self.message_user(request, text.format(number=asked), messages.SUCCESS if asked else messages.WARNING)


class ApiKeyForm(forms.ModelForm):
    """The form of a key: its name, rights, project, rate and expiry."""

    scopes = forms.MultipleChoiceField(
        choices=[(value, gettext_lazy(label)) for value, label in ApiScope.choices],
        widget=forms.CheckboxSelectMultiple,
        initial=[ApiScope.READ, ApiScope.WRITE],
    )
    topics = SimpleArrayField(
        forms.CharField(max_length=255),
        required=False,
        help_text=gettext_lazy("Only topics whose names begin so, separated by commas; empty for all."),
    )

    class Meta:
        model = ApiKey
        fields = ["name", "scopes", "topics", "project", "rate_per_second", "expires_at"]
        help_texts = {
            "name": gettext_lazy("Who uses it, and for what."),
            "rate_per_second": gettext_lazy("Requests a second; empty for the API's default."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "expires_at" in self.fields:  # Django's two fields of a time have one label
            labels = (_("Expires at: date"), _("Expires at: time"))
            for each, label in zip(self.fields["expires_at"].widget.widgets, labels, strict=True):
                each.attrs["aria-label"] = label


@admin.register(ApiKey)
class ApiKeyAdmin(FramedAdmin[ApiKey]):
    """The page of keys. Nothing here can show a secret that was made before."""

    form = ApiKeyForm
    list_display = ["name", "prefix", "condition", "scopes", "topics", "project", "expires_at", "last_used_at"]
    condition = staticmethod(column(gettext_lazy("state"), lambda key: _(key.state)))
    list_filter = [("revoked_at", admin.EmptyFieldListFilter)]
    search_fields = ["name", "prefix", "project"]
    readonly_fields = ["prefix", "created_at", "last_used_at", "revoked_at"]
    actions = ["revoke", "rotate"]
    ordering = ["-id"]

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        return [*ApiKeyForm.Meta.fields, *(self.readonly_fields if obj is not None else ())]

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        if not change:
            token, obj.prefix, obj.digest = make_token()
            request._leasequeue_token = token  # type: ignore[attr-defined]  # for response_add, in this request only
        # Django saves in a transaction, and writes its own log in it.
        super().save_model(request, obj, form, change)
        changed = audit.changes(form) if change else None
        note("change_key" if change else "create_key", obj, audit.actor(request), changed)

    def delete_model(self, request: HttpRequest, obj: ApiKey) -> None:
        with transaction.atomic(using=obj._state.db):
            note("delete_key", obj, audit.actor(request))
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        with transaction.atomic(using=queryset.db):
            for key in queryset:
                note("delete_key", key, audit.actor(request))
            super().delete_queryset(request, queryset)

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        return self._show(request, obj, request._leasequeue_token)  # type: ignore[attr-defined]

    def _show(self, request: HttpRequest, key: ApiKey, token: str) -> HttpResponse:
        """Show a secret, once: it goes into this page and nowhere else."""
        title = _("Key {name}").format(name=key.name)
        return self.page(request, "apikey/shown_once.html", {"token": token}, title=title)

    @admin.action(description=gettext_lazy("Revoke the selected keys for good"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        number = 0
        with transaction.atomic(using=queryset.db):
            for key in queryset.order_by("pk"):
                if revoke_key(key, by=audit.actor(request)):
                    number += 1
                    self.log_change(request, key, "revoked")
        self.message_user(request, _("Keys revoked: {number}.").format(number=number), messages.SUCCESS)

    @admin.action(description=gettext_lazy("Give the selected key a new secret"), permissions=["change"])
    def rotate(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        keys = list(queryset[:2])
        if len(keys) != 1 or keys[0].revoked_at is not None:
            self.message_user(request, _("Select one key that is not revoked."), messages.ERROR)
            return None
        with transaction.atomic(using=keys[0]._state.db):
            token = rotate_key(keys[0], by=audit.actor(request))
            self.log_change(request, keys[0], "given a new secret")
        return self._show(request, keys[0], token)

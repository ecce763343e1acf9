"""API keys in the admin: make, look at, revoke, give a new secret. A secret is shown once, on the page that made it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.postgres.forms import SimpleArrayField
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from ..http.access import make_token, note, revoke_key, rotate_key
from ..models import ApiKey, ApiScope
from .audit import actor
from .pages import FramedAdmin


class ApiKeyForm(forms.ModelForm):
    """What a person may say about a key."""

    scopes = forms.MultipleChoiceField(
        choices=ApiScope.choices, widget=forms.CheckboxSelectMultiple, initial=[ApiScope.READ, ApiScope.WRITE]
    )
    topics = SimpleArrayField(
        forms.CharField(max_length=255),
        required=False,
        help_text="Only topics whose names begin so, separated by commas; empty for all.",
    )

    class Meta:
        model = ApiKey
        fields = ["name", "scopes", "topics", "project", "rate_per_second", "expires_at"]


@admin.register(ApiKey)
class ApiKeyAdmin(FramedAdmin[ApiKey]):
    """The page of keys. Nothing here can show a secret that was made before."""

    form = ApiKeyForm
    list_display = ["name", "prefix", "state", "scopes", "topics", "project", "expires_at", "last_used_at"]
    list_filter = [("revoked_at", admin.EmptyFieldListFilter)]
    search_fields = ["name", "prefix", "project"]
    readonly_fields = ["prefix", "created_at", "last_used_at", "revoked_at"]
    actions = ["revoke", "rotate"]
    ordering = ["-id"]

    @admin.display(description="state")
    def state(self, key: ApiKey) -> str:
        if key.revoked_at is not None:
            return "revoked"
        return "expired" if key.expires_at is not None and key.expires_at <= timezone.now() else "active"

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        return [*ApiKeyForm.Meta.fields, *(self.readonly_fields if obj is not None else ())]

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        if not change:
            token, obj.prefix, obj.digest = make_token()
            request._leasequeue_token = token  # type: ignore[attr-defined]  # for response_add, in this request only
        # Django saves in a transaction, and writes its own log in it.
        super().save_model(request, obj, form, change)
        note("change_key" if change else "create_key", obj, actor(request))

    def delete_model(self, request: HttpRequest, obj: ApiKey) -> None:
        with transaction.atomic(using=obj._state.db):
            note("delete_key", obj, actor(request))
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        with transaction.atomic(using=queryset.db):
            for key in queryset:
                note("delete_key", key, actor(request))
            super().delete_queryset(request, queryset)

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        return self._show(request, obj, request._leasequeue_token)  # type: ignore[attr-defined]

    def _show(self, request: HttpRequest, key: ApiKey, token: str) -> HttpResponse:
        """Show a secret, once: it goes into this page and nowhere else."""
        return self.page(request, "apikey/shown_once.html", {"token": token}, title=f"Key {key.name}")

    @admin.action(description="Revoke the selected keys for good", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        count = 0
        with transaction.atomic(using=queryset.db):
            for key in queryset.order_by("pk"):
                if revoke_key(key, by=actor(request)):
                    count += 1
                    self.log_change(request, key, "revoked")
        self.message_user(request, f"Revoked {count}.", messages.SUCCESS)

    @admin.action(description="Give the selected key a new secret", permissions=["change"])
    def rotate(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        keys = list(queryset[:2])
        if len(keys) != 1 or keys[0].revoked_at is not None:
            self.message_user(request, "Select one key that is not revoked.", messages.ERROR)
            return None
        with transaction.atomic(using=keys[0]._state.db):
            token = rotate_key(keys[0], by=actor(request))
            self.log_change(request, keys[0], "given a new secret")
        return self._show(request, keys[0], token)

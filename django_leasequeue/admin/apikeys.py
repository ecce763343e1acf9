"""API keys in the admin: make, look at, revoke, give a new secret. A secret is shown once, on the page that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.postgres.forms import SimpleArrayField
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from ..api.keys import make_token, rotate_key
from ..models import ApiKey, ApiScope

if TYPE_CHECKING:  # generic for the type checker only
    KeyModelForm = forms.ModelForm[ApiKey]
    KeyModelAdmin = admin.ModelAdmin[ApiKey]
else:
    KeyModelForm = forms.ModelForm
    KeyModelAdmin = admin.ModelAdmin


class ApiKeyForm(KeyModelForm):
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
class ApiKeyAdmin(KeyModelAdmin):
    """The page of keys. Nothing here can show a secret that was made before."""

    form = ApiKeyForm
    list_display = ["name", "prefix", "state", "scopes", "topics", "project", "expires_at", "last_used_at"]
    list_filter = [("revoked_at", admin.EmptyFieldListFilter), "project"]
    search_fields = ["name", "prefix"]
    readonly_fields = ["prefix", "created_at", "last_used_at", "revoked_at"]
    actions = ["revoke", "rotate"]
    ordering = ["-id"]

    @admin.display(description="state")
    def state(self, key: ApiKey) -> str:
        """Whether it works now."""
        if key.revoked_at is not None:
            return "revoked"
        return "expired" if key.expires_at is not None and key.expires_at <= timezone.now() else "active"

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        return [*ApiKeyForm.Meta.fields, *(self.readonly_fields if obj is not None else ())]

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        if not change:
            token, obj.prefix, obj.digest = make_token()
            request._leasequeue_token = token  # type: ignore[attr-defined]  # for response_add, in this request only
        super().save_model(request, obj, form, change)

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        return self._show(request, obj, request._leasequeue_token)  # type: ignore[attr-defined]

    def _show(self, request: HttpRequest, key: ApiKey, token: str) -> HttpResponse:
        """Show a secret, once: it goes into this page and nowhere else."""
        context = {**self.admin_site.each_context(request), "title": f"Key {key.name}", "key": key, "token": token}
        response = TemplateResponse(request, "admin/leasequeue/apikey/shown_once.html", context)
        response["Cache-Control"] = "no-store"
        return response

    @admin.action(description="Revoke the selected keys for good", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Make keys useless."""
        count = queryset.filter(revoked_at=None).update(revoked_at=timezone.now())
        self.message_user(request, f"Revoked {count}.", messages.SUCCESS)

    @admin.action(description="Give the selected key a new secret", permissions=["change"])
    def rotate(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        """Replace the secret of one key and show the new one."""
        keys = list(queryset[:2])
        if len(keys) != 1 or keys[0].revoked_at is not None:
            self.message_user(request, "Select one key that is not revoked.", messages.ERROR)
            return None
        return self._show(request, keys[0], rotate_key(keys[0]))

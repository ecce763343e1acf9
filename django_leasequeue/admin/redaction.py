"""What of a payload the user of a request may see, by the rules of ``django_leasequeue.engine.dead.redaction``."""

from __future__ import annotations

from django.http import HttpRequest

from ..engine.dead.redaction import HIDDEN, hide_secrets, readable, redact, shape

__all__ = ["HIDDEN", "hide_secrets", "may_view", "readable", "redact", "shape"]


def may_view(request: HttpRequest) -> bool:
    """Whether this user may see the values of payloads."""
    return request.user.has_perm("leasequeue.view_payload")

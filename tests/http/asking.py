"""Asking the doors for operators, with a new key each time."""

from collections.abc import Callable
from typing import Any

from django.test import Client

from django_leasequeue.http.access import create_key
from tests.http import contract

Ask = Callable[..., tuple[int, dict[str, Any]]]


def asking(settings: Any, base: str) -> Ask:
    """Return a function that gets an address behind ``base`` and holds the answer against the contract."""
    settings.LEASEQUEUE = {"API": {"ACCESS": "keys", "KEY_CACHE_SECONDS": 0}}

    def get(
        path: str, query: Any = None, *, method: str = "get", scopes: tuple[str, ...] = ("read",), **rights: Any
    ) -> tuple[int, dict[str, Any]]:
        token = create_key("test", list(scopes), **rights)[1]
        how: dict[str, Any] = {} if method == "get" else {"content_type": "application/json"}
        answer = getattr(Client(), method)(base + path, query, headers={"authorization": f"Bearer {token}"}, **how)
        contract.check(method, base + path, answer.status_code, answer.json(), contract.TRIAGE)
        return answer.status_code, answer.json()

    return get

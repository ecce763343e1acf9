"""System check of the host's URLs: whatever stands behind a door that answers to every address below its prefix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.urls import URLPattern, URLResolver, get_resolver

#: The view that answers 404 to whatever is no endpoint, and how its route ends where that is every address.
NOT_FOUND = "django_leasequeue.http.views.not_found"
REST = "<leasequeue_text:rest>"


@checks.register(checks.Tags.urls)
def check_addresses(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Check that no address of the host is hidden by one of the doors."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    found: list[checks.CheckMessage] = []
    prefixes: list[str] = []
    for route, view in _routes(get_resolver().url_patterns):
        hiding = next((prefix for prefix in prefixes if route.startswith(prefix)), None)
        if hiding is not None:
            found.append(
                checks.Warning(
                    f"The address {route!r} is never reached: the topics that are mounted at {hiding!r} before it"
                    " answer 404 to every other address there.",
                    hint="In ROOT_URLCONF, put it before path(..., include('django_leasequeue.http.topics.urls')).",
                    id="leasequeue.W024",
                )
            )
        if view == NOT_FOUND and route.endswith(REST):
            prefixes.append(route.removesuffix(REST))
    return found


def _routes(patterns: Sequence[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each route and the dotted path of its view, in the order in which Django tries them."""
    for pattern in patterns:
        route = prefix + str(pattern.pattern).removeprefix("^")
        if isinstance(pattern, URLResolver):
            yield from _routes(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route, f"{pattern.callback.__module__}.{getattr(pattern.callback, '__qualname__', '')}"

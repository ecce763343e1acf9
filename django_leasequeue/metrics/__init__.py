"""Figures for monitoring: Prometheus (extra ``prometheus``) and OpenTelemetry (extra ``otel``).

Nothing of either library is imported before it is used.

HTTP APIs, commands and workers show the figures of `figures.py` by `prometheus.py`. Start there.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from django.core.exceptions import ImproperlyConfigured


def load_extra(module: str, extra: str) -> ModuleType:
    """Import a module of an extra's library; ``ImproperlyConfigured`` names the extra if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"{error.name} is not installed: pip install 'django-leasequeue[{extra}]'."
        ) from error

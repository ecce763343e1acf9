"""Figures for monitoring: Prometheus (extra ``prometheus``) and OpenTelemetry (extra ``otel``).

Nothing of either library is imported before it is used.

Doors, commands and workers show by `prometheus.py` what `figures.py` reads. Start there.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from django.core.exceptions import ImproperlyConfigured


def load_extra(module: str, extra: str) -> ModuleType:
    """Import a module of the library that an extra of this package installs; say what to install if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"{error.name} is not installed: pip install 'django-leasequeue[{extra}]'."
        ) from error

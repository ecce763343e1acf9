"""The settings: ``LEASEQUEUE = {...}`` in the host's settings module.

``options`` says which there are, ``loader`` reads and checks them.

Everything may import it; it imports enums and exceptions. Start at `options.py`.
"""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from .loader import Problem, parse, read
from .options import Settings

__all__ = ["Settings", "problems", "settings"]


class _Lazy:
    """Reads ``LEASEQUEUE`` on first use, and again when a test changes it."""

    def __getattr__(self, name: str) -> Any:
        loaded = read(Settings, _given(), "LEASEQUEUE")
        self.__dict__.update({key: getattr(loaded, key) for key in Settings.__dataclass_fields__})
        return getattr(loaded, name)


def _given() -> Any:
    return getattr(django_settings, "LEASEQUEUE", {})


def problems() -> list[Problem]:
    """Return what is wrong with ``LEASEQUEUE``: a system check tells it."""
    found: list[Problem] = []
    parse(Settings, _given(), "LEASEQUEUE", found)
    return found


#: The settings in force. The first use of any of them raises ``ImproperlyConfigured`` if one is wrong.
settings = cast(Settings, _Lazy())


def _changed(*, setting: str, **_: Any) -> None:
    if setting == "LEASEQUEUE":
        vars(settings).clear()


setting_changed.connect(_changed)

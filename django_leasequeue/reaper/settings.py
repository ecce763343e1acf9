"""The options of the reaper: ``LEASEQUEUE["REAPER"]``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .. import conf
from .duty import Duty


@dataclass(frozen=True, slots=True)
class ReaperOptions:
    """``LEASEQUEUE = {"REAPER": {"INTERVALS": {"samples": 60, "recurring": None}, "RETRY": 3}}``."""

    #: Seconds between two turns, by duty; ``None`` leaves a duty out.
    intervals: dict[str, float | None] = field(default_factory=dict)
    #: Seconds after which one that does not lead tries again (it hears at once of a leader that stops).
    retry: float = 3.0


def _seconds(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.01 <= value <= 86_400:
        raise ImproperlyConfigured(f"{what} must be a number of seconds from 0.01 to 86400; it is {value!r}.")
    return float(value)


def load_options(duties: Iterable[Duty]) -> ReaperOptions:
    """Return the options of the settings.

    Args:
        duties: those that intervals may name.

    Raises:
        ImproperlyConfigured: a name is unknown, or a value is not allowed.
    """
    given = conf.settings.REAPER
    if not isinstance(given, dict) or not isinstance(given.get("INTERVALS", {}), dict):
        raise ImproperlyConfigured("LEASEQUEUE['REAPER'] and its INTERVALS must be dicts.")
    if unknown := set(given) - {"INTERVALS", "RETRY"}:
        raise ImproperlyConfigured(
            f"LEASEQUEUE['REAPER'] has no option {min(unknown)!r}; there are INTERVALS and RETRY."
        )
    names = {duty.name for duty in duties}
    intervals: dict[str, float | None] = {}
    for name, value in given.get("INTERVALS", {}).items():
        if name not in names:
            raise ImproperlyConfigured(f"The reaper has no duty {name!r}; there are {', '.join(sorted(names))}.")
        intervals[name] = None if value is None else _seconds(f"The interval of the reaper's duty {name!r}", value)
    retry = _seconds("LEASEQUEUE['REAPER']['RETRY']", given.get("RETRY", ReaperOptions().retry))
    return ReaperOptions(intervals, retry)

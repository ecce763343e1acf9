"""Times as Django gives and takes them: aware, or naive in the host's zone without ``USE_TZ``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings as django_settings
from django.utils import timezone

from ..engine import clock


def local(value: datetime | None) -> datetime | None:
    """Return an aware time as Django gives it: in UTC, or naive in the host's zone without ``USE_TZ``."""
    if value is None:
        return None
    return value.astimezone(UTC) if django_settings.USE_TZ else timezone.make_naive(value)


def aware(value: datetime) -> datetime:
    """Return a time as an aware one; a naive one is in the host's zone."""
    return timezone.make_aware(value) if timezone.is_naive(value) else value


def after(delay: timedelta) -> datetime | None:
    """Return the time ``delay`` from now, as Django gives times.

    Raises:
        OverflowError: Python has no such time.
    """
    return local(clock.now() + delay)


def parse(text: Any) -> datetime | None:
    """Return the aware time that an ISO 8601 text names; ``None`` if it names none."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return None if timezone.is_naive(found) else found

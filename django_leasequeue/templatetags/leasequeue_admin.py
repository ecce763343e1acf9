"""Filters of the admin's pages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from django import template
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..engine import clock

register = template.Library()
register.filter("span", clock.span)


@register.filter("linked")
def link(text: object, address: str | None) -> SafeString | str:
    """Return a link, or the text alone where there is no address."""
    return format_html('<a href="{}">{}</a>', address, text) if address else str(text)


@register.filter
def count(value: int | None) -> str:
    """A number with its thousands apart, as the language has it, or ``unknown``."""
    return _("unknown") if value is None else number_format(value, use_l10n=True, force_grouping=True)


def or_more(value: int, more: bool) -> str:
    """A number of something, of which there may be more."""
    return _("{number} or more").format(number=count(value)) if more else count(value)


@register.filter
def capped(value: int, cap: int) -> str:
    """A count that is exact up to ``cap``: ``12``, ``10,000+``; above it a sample's: ``about 123,000``."""
    if value <= cap:
        return count(value)
    return f"{count(cap)}+" if value <= cap + 1 else _("about {number}").format(number=count(value))


@register.filter
def ago(value: datetime | None) -> str:
    """Return how long ago something was, or in how long it will be."""
    if value is None:
        return "–"  # noqa: RUF001  (a dash, not a minus)
    seconds = (clock.now() - clock.aware(value)).total_seconds()
    words = _("{time} ago") if seconds >= 0 else _("in {time}")
    return words.format(time=clock.span(abs(seconds)))


@register.filter
def moment(value: datetime | str | None) -> SafeString | str:
    """A time, or its ISO 8601 text, to the millisecond, in the current time zone."""
    if isinstance(value, str):
        text = value
        try:
            value = datetime.fromisoformat(text)
            value = value if value.tzinfo else value.replace(tzinfo=UTC)
        except ValueError:  # what a program of the host wrote is shown as it is
            return text
    if not value:  # also where a row has no such column
        return "–"  # noqa: RUF001  (a dash, not a minus)
    value = clock.aware(value)
    local = timezone.localtime(value)
    words = f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03}"
    return format_html('<time datetime="{}">{}</time>', value.isoformat(), words)


@register.filter
def of(lines: Mapping[int, str], seq: int) -> str:
    """The text that a mapping has for a job's number."""
    return lines.get(seq) or "–"  # noqa: RUF001  (a dash, not a minus)


@register.filter
def tail(key: str | None) -> str:
    """A key, of a long one its end: keys that were made at one time begin alike."""
    if key is None:
        return "–"  # noqa: RUF001  (a dash, not a minus)
    return key if len(key) <= 16 else f"…{key[-12:]}"

"""Figures in words, and rows as HTML tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ..metrics import charts

#: A row of a gold table, and the rows of all by name.
Row = dict[str, Any]
Rows = Mapping[str, Sequence[Row]]

#: Rows shown of one table.
MOST_ROWS = 50
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def utc(at: datetime) -> datetime:
    """Return a time of Spark's, which bears no zone, as the UTC that it is."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def queue_name(row: Row) -> str:
    """Return the name of a row's queue, with its project."""
    return f"{row['project']}/{row['queue']}" if row.get("project") else str(row["queue"])


def when(at: datetime) -> str:
    """Return a time: ``Thursday 14 March 2030, 09:05``."""
    return f"{utc(at):%A %-d %B %Y, %H:%M}"


def lasted(span: timedelta | float) -> str:
    """Return a duration in its one or two largest units: ``2 days 3 hours``, ``4 minutes``, ``1.5 seconds``."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 120:
        told = f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"
        return f"{told} second{'s' if told != '1' else ''}"
    parts = []
    rest = round(seconds / 60) * 60
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(parts[:2])


def percent(share: float | None) -> str:
    """Return a share: ``37 %``, ``0.4 %``."""
    if share is None:
        return "-"
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def change(this: float | None, last: float | None) -> str:
    """Return a change against the last week: ``+12 %``, ``three times``, ``as before``."""
    if not this or not last:
        return "new" if this else "-"
    ratio = this / last
    if abs(ratio - 1) < 0.005:
        return "as before"
    if ratio > 100:
        return "over 100 times"
    return f"{ratio:.1f} times" if ratio >= 2 else f"{100 * (ratio - 1):+.0f} %"


def columns_of(names: str, **titles: str) -> dict[str, str]:
    """Return the columns of a table with their titles, those that are not given made of the name."""
    return {name: titles.get(name, name.replace("_", " ").capitalize()) for name in names.split()}


def link_to(address: str, text: str) -> SafeString | str:
    """Return a link, or nothing without an address."""
    return format_html('<a href="{}">{}</a>', address, text) if address else ""


def table(rows: Sequence[Row], columns: dict[str, str]) -> SafeString:
    """Return rows as a table with these columns, and a line that says how many more there are."""
    if not rows:
        return format_html('<p class="empty">{}</p>', "Nothing.")
    head = format_html_join(
        "",
        '<th scope="col"{}>{}</th>',
        (
            (SafeString(' class="lq-number"') if _numeric(name, rows[0][name]) else "", title)
            for name, title in columns.items()
        ),
    )
    body = format_html_join(
        "",
        "<tr>{}</tr>",
        ((format_html_join("", "{}", ((_cell(row, name),) for name in columns)),) for row in rows[:MOST_ROWS]),
    )
    more = len(rows) - MOST_ROWS
    return format_html(
        '<div class="lq-scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>{}',
        head,
        body,
        format_html('<p class="lq-quiet">{} more are in the files beside this page.</p>', more) if more > 0 else "",
    )


def _numeric(name: str, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and name != "hour_of_week"


def _cell(row: Row, name: str) -> SafeString:
    value: Any = row[name]
    if name == "queue":
        return format_html("<td>{}</td>", queue_name(row))
    if name == "hour_of_week":
        return format_html("<td>{}</td>", charts.hour_of_week(value))
    if name == "node":
        link = row.get("link")
        return format_html("<td>{}</td>", link_to(link, str(value)) if link else "all" if value is None else value)
    if isinstance(value, bool):
        return format_html("<td>{}</td>", "yes" if value else "no")
    if _numeric(name, value):
        told = f"{100 * value:.1f} %" if name in {"rate", "others_rate"} else charts.figure(value)
        return format_html('<td class="lq-number">{}</td>', told)
    if isinstance(value, datetime):
        return format_html("<td>{}</td>", when(value))
    bad = value in {"sick", "slow", "longer", "abandoned"}
    return format_html("<td{}>{}</td>", SafeString(' class="bad"') if bad else "", "" if value is None else str(value))

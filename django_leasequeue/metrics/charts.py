"""Charts as SVG, made on the server: no script, no inline style; colours are in the page's style sheet.

Each has a title and a description for screen readers; the larger ones also have a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

#: Colours and dashes that the style sheet knows.
TONES = 4
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 180, 52, 8, 8, 22
#: The field between the axes.
_WIDE, _HIGH = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
#: Lines of the table beside a chart.
_TABLE_ROWS = 120
#: Formats a template for each row.
_each = partial(format_html_join, "")


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: its name, a value at each place (``None`` where nothing is known), and its colour."""

    label: str
    values: Sequence[float | None]
    #: Number of the colour; its place in the chart by default.
    tone: int | None = None


def figure(value: float | None) -> str:
    """Return a number as people read it in their language: ``12,345``, ``1.2``, ``0.03``, or a dash."""
    if value is None:
        return "–"  # noqa: RUF001  (a dash, not a minus)
    if value == int(value) or abs(value) >= 100:
        return number_format(f"{value:.0f}", use_l10n=True, force_grouping=True)
    return number_format(f"{value:.3g}", use_l10n=True)


def short(value: float) -> str:
    """Return a number for an axis: ``1.5k``, ``2M``."""
    for size, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return number_format(f"{value / size:.3g}", use_l10n=True) + mark
    return number_format(f"{value:.3g}", use_l10n=True)


def ticks(top: float) -> list[float]:
    """Return round values from 0 to at least ``top``, about four steps."""
    if top <= 0 or not math.isfinite(top):
        return [0.0, 1.0]
    rough = top / 4
    size: float = 10 ** math.floor(math.log10(rough))
    step = next(each * size for each in (1, 2, 2.5, 5, 10) if each * size >= rough * 0.999)
    return [step * n for n in range(math.ceil(top / step * 0.999) + 1)]


def _points(values: Sequence[float | None], place: Callable[[int, float], tuple[float, float]]) -> list[list[str]]:
    """Return the consecutive known values as lists of points."""
    runs: list[list[str]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            x, y = place(index, value)
            runs[-1].append(f"{x:.1f},{y:.1f}")
    return [run for run in runs if run]


def _path(runs: Iterable[Sequence[str]]) -> str:
    # A single point becomes a short line: a dot is hardly visible.
    return " ".join(f"M{run[0]} m-3,0 h6" if len(run) == 1 else "M" + " L".join(run) for run in runs)


def sparkline(values: Sequence[float | None], title: str) -> SafeString:
    """Draw a small line without axes; ``title`` has its figures, for screen readers."""
    top = max((value for value in values if value is not None), default=0) or 1
    step = 120 / max(len(values) - 1, 1)
    runs = _points(values, lambda index, value: (index * step, 22 - 20 * value / top))
    area = " ".join(
        f"M{run[0].split(',')[0]},24 L{' L'.join(run)} L{run[-1].split(',')[0]},24 Z" for run in runs if len(run) > 1
    )
    return format_html(
        '<svg class="lq-svg lq-spark" viewBox="0 0 120 24" preserveAspectRatio="none" role="img" focusable="false"'
        ' aria-label="{}"><g class="lq-tone-0"><path class="lq-area" d="{}"/><path class="lq-line" d="{}"/></g></svg>',
        title,
        area,
        _path(runs),
    )


def chart(
    name: str,
    title: str,
    times: Sequence[datetime],
    series: Sequence[Series],
    *,
    unit: str = "",
    note: str = "",
    stacked: bool = False,
) -> SafeString:
    """Draw at most ``TONES`` lines, or ``stacked`` bars, over evenly spaced times, with axes, a legend and a table.

    ``name`` begins its element ids, unique in the page; ``title`` is the caption, ``note`` a sentence below it.
    """
    scale, drawn = (_bars if stacked else _lines)(times, series)
    said = format_html('<p class="lq-quiet">{}</p>', note) if note else SafeString("")
    legend = SafeString("")
    if len(series) > 1:
        items = _each(
            '<li><svg class="lq-svg" viewBox="0 0 26 10" aria-hidden="true"><g class="lq-tone-{}">'
            '<path class="lq-line lq-line-{}" d="M1,5H25"/></g></svg>{}</li>',
            ((tone, tone, each.label) for tone, each in _toned(series)),
        )
        legend = format_html('<ul class="lq-legend">{}</ul>', items)
    table = _table(title, times, series, unit)
    return _framed(name, title, describe(series, unit), _axes(times, scale) + drawn, before=said + legend, after=table)


def _lines(times: Sequence[datetime], series: Sequence[Series]) -> tuple[list[float], SafeString]:
    scale = ticks(max((v for each in series for v in each.values if v is not None), default=0))
    place = _scaler(len(times), scale[-1])
    return scale, _each(
        '<g class="lq-tone-{}"><path class="lq-line lq-line-{}" d="{}"/></g>',
        ((tone, tone, _path(_points(each.values, place))) for tone, each in _toned(series)),
    )


def _bars(times: Sequence[datetime], series: Sequence[Series]) -> tuple[list[float], SafeString]:
    sums = [sum(each.values[n] or 0 for each in series) for n in range(len(times))]
    scale = ticks(max(sums, default=0))
    width = _WIDE / max(len(times), 1)
    below = [0.0] * len(times)
    groups = []
    for tone, each in _toned(series):
        path = ""
        for index, value in enumerate(each.values):
            if value:
                x, y = _LEFT + width * (index + 0.1), _TOP + _HIGH * (1 - (below[index] + value) / scale[-1])
                path += f"M{x:.1f},{y:.1f}h{width * 0.8:.1f}v{_HIGH * value / scale[-1]:.1f}h-{width * 0.8:.1f}z"
                below[index] += value
        groups.append((tone, path))
    return scale, _each('<g class="lq-tone-{}"><path class="lq-fill" d="{}"/></g>', groups)


def week(name: str, title: str, values: Mapping[int, float]) -> SafeString:
    """Draw the hours of a week (0 is Monday from 00:00 to 01:00) as squares, darker for higher values."""
    highest = max(values.values(), default=0) or 1
    width, high = _WIDE / 24, _HIGH / 7
    squares = _each(
        '<rect class="lq-fill" x="{}" y="{}" width="{}" height="{}" fill-opacity="{}"><title>{}: {}</title></rect>',
        (
            (
                f"{_LEFT + hour % 24 * width:.1f}",
                f"{_TOP + hour // 24 * high:.1f}",
                f"{width - 1:.1f}",
                f"{high - 1:.1f}",
                f"{0.06 + 0.94 * value / highest:.2f}",
                hour_of_week(hour),
                figure(value),
            )
            for hour, value in sorted(values.items())
        ),
    )
    days = _each(
        '<text x="{}" y="{}" text-anchor="end">{}</text>',
        ((_LEFT - 6, f"{_TOP + (n + 0.7) * high:.1f}", day[:3]) for n, day in enumerate(DAYS)),
    )
    clock = _each(
        '<text class="lq-time" x="{}" y="{}">{}</text>',
        ((f"{_LEFT + hour * width:.1f}", _HEIGHT - 6, f"{hour:02}:00") for hour in range(0, 24, 3)),
    )
    most = max(values, key=lambda hour: values[hour], default=0)
    description = f"Most on {hour_of_week(most)}: {figure(values.get(most, 0))}."
    return _framed(name, title, description, days + clock + format_html('<g class="lq-tone-0">{}</g>', squares))


def drawing(
    name: str, title: str, description: str, width: int, height: int, drawn: SafeString, *, natural: bool = False
) -> SafeString:
    """Frame a scrollable drawing; a ``natural`` one has the size of its coordinates, not of the page."""
    return format_html(
        '<figure class="lq-{}" id="{name}-drawn"><div class="lq-scroll" tabindex="0" role="region"'
        ' aria-label="{label}"><svg class="lq-svg" viewBox="0 0 {width} {height}"{} role="img" focusable="false"'
        ' aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{title}</title>'
        '<desc id="{name}-desc">{}</desc>{}</svg></div></figure>',
        "natural" if natural else "chart",
        format_html(' width="{}" height="{}"', width, height) if natural else "",
        description,
        drawn,
        name=name,
        title=title,
        label=_("{title}, drawn").format(title=title),
        width=width,
        height=height,
    )


def hour_of_week(hour: int) -> str:
    """Return the name of an hour of the week (0 is Monday from 00:00 to 01:00)."""
    return f"{DAYS[hour // 24]} {hour % 24:02}:00 to {hour % 24 + 1:02}:00"


def _toned(series: Sequence[Series]) -> list[tuple[int, Series]]:
    return [(n % TONES if each.tone is None else each.tone, each) for n, each in enumerate(series)]


def _scaler(count: int, top: float) -> Callable[[int, float], tuple[float, float]]:
    step = _WIDE / max(count - 1, 1)
    return lambda index, value: (_LEFT + index * step, _TOP + _HIGH * (1 - value / top))


def _framed(
    name: str, title: str, description: str, drawn: SafeString, *, before: str = "", after: str = ""
) -> SafeString:
    """Frame a chart with its caption and description, and the parts ``before`` and ``after`` it."""
    return format_html(
        '<figure class="lq-chart" id="{name}"><figcaption id="{name}-title">{title}</figcaption>{before}'
        '<svg class="lq-svg" viewBox="0 0 {width} {height}" role="img" focusable="false" aria-labelledby="{name}-title'
        ' {name}-desc"><desc id="{name}-desc">{description}</desc>{drawn}</svg>{after}</figure>',
        name=name,
        title=title,
        before=before,
        width=_WIDTH,
        height=_HEIGHT,
        description=description,
        drawn=drawn,
        after=after,
    )


def describe(series: Sequence[Series], unit: str) -> str:
    """Return the description of a chart: each line's newest and highest value."""
    parts = []
    for each in series:
        known = [value for value in each.values if value is not None]
        if known:
            newest, most = figure(known[-1]), figure(max(known))
            text = _("{line}: {newest} at the end, at most {most} {unit}")
            parts.append(text.format(line=each.label, newest=newest, most=most, unit=unit).strip())
    return "; ".join(parts) + "." if parts else _("No figures.")


def _axes(times: Sequence[datetime], scale: Sequence[float]) -> SafeString:
    rows = _each(
        '<path class="lq-grid" d="M{},{}H{}"/><text x="{}" y="{}" text-anchor="end">{}</text>',
        (
            (_LEFT, f"{y:.1f}", _WIDTH - _RIGHT, _LEFT - 6, f"{y + 4:.1f}", short(value))
            for value in scale
            for y in [_TOP + _HIGH * (1 - value / scale[-1])]
        ),
    )
    place = _scaler(len(times), 1)
    columns = _each(
        '<text class="lq-time{}" x="{}" y="{}" text-anchor="middle">{}</text>',
        (
            (" lq-rare-time" if index % 2 else "", f"{place(n, 0)[0]:.1f}", _HEIGHT - 6, text)
            for index, (n, text) in enumerate(_marks(times))
        ),
    )
    base = format_html('<path class="lq-axis" d="M{},{}H{}"/>', _LEFT, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT)
    return rows + columns + base


def _marks(times: Sequence[datetime]) -> list[tuple[int, str]]:
    """Return (index, label) of the times on a chart's axis; days are labelled at midnight."""
    local = [timezone.localtime(at) for at in times]
    midnights = [n for n, at in enumerate(local) if (at.hour, at.minute) == (0, 0)]
    form = "%H:%M"
    shown: Sequence[int] = range(len(times))
    if len(times) > 1 and (times[-1] - times[0]).days >= 1:
        form = "%d %b %H:%M"
        if len(midnights) > 2:
            shown, form = midnights, "%a %d %b"
    return [(n, local[n].strftime(form)) for n in shown[:: max(math.ceil(len(shown) / 7), 1)]]


def _table(title: str, times: Sequence[datetime], series: Sequence[Series], unit: str) -> SafeString:
    first = max(len(times) - _TABLE_ROWS, 0)
    head = _each('<th scope="col" class="lq-number">{}</th>', ((each.label,) for each in series))
    rows = _each(
        '<tr><th scope="row">{}</th>{}</tr>',
        (
            (
                timezone.localtime(times[n]).strftime("%d %b %H:%M"),
                _each('<td class="lq-number">{}</td>', ((figure(each.values[n]),) for each in series)),
            )
            for n in range(first, len(times))
        ),
    )
    return format_html(
        '<details><summary>{summary}</summary><div class="lq-scroll" tabindex="0" role="region"'
        ' aria-label="{label}"><table><caption>{unit}</caption><thead><tr><th scope="col">{time}</th>{head}</tr>'
        "</thead><tbody>{rows}</tbody></table></div></details>",
        summary=_("{title}: as a table").format(title=title),
        label=_("{title}: table").format(title=title),
        time=_("time"),
        unit=unit,
        head=head,
        rows=rows,
    )

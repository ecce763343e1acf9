"""Charts as SVG text: no library, no script, readable in a mail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

#: Told apart by people who do not see all colours (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
WIDTH, HEIGHT = 900, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 28, 30

Series = tuple[str, Sequence[tuple[datetime, float]]]


def number(value: float | None) -> str:
    """Return a figure as people write it: three digits, k and M."""
    if value is None:
        return "-"
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.3g}"


def _frame(title: str, unit: str, highest: float, body: str, legend: str = "") -> str:
    lines = []
    for step in range(5):
        value = highest * step / 4
        y = _y(value, highest)
        lines.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(value)}{escape(unit)}</text>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(lines)}{body}{legend}</svg>"
    )


def _y(value: float, highest: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / highest


def lines(title: str, series: Sequence[Series], unit: str = "") -> str:
    """Return a chart of curves over time."""
    points = [point for _, curve in series for point in curve]
    if not points:
        return empty(title)
    first, last = min(at for at, _ in points), max(at for at, _ in points)
    span = (last - first).total_seconds() or 1.0
    highest = max(value for _, value in points) or 1.0

    def x(at: datetime) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (at - first).total_seconds() / span

    body, legend = [], []
    for index, (name, curve) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{x(at):.1f},{_y(value, highest):.1f}" for at, value in sorted(curve))
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if len(curve) == 1:
            at, value = curve[0]
            body.append(f'<circle cx="{x(at):.1f}" cy="{_y(value, highest):.1f}" r="3" fill="{colour}"/>')
        legend.append(f'<tspan fill="{colour}">&#9632; </tspan><tspan>{escape(name)}&#160;&#160; </tspan>')
    for step in range(5):
        at = first + (last - first) * step / 4
        anchor = ("start", "middle", "middle", "middle", "end")[step]
        body.append(f'<text x="{x(at):.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{at:%m-%d %H:%M}</text>')
    return _frame(title, unit, highest, "".join(body), f'<text x="{_LEFT}" y="16">{"".join(legend)}</text>')


def bars(title: str, values: Sequence[tuple[str, float, bool]], unit: str = "") -> str:
    """Return a chart of named bars; a marked one is red."""
    if not values:
        return empty(title)
    highest = max(value for _, value, _ in values) or 1.0
    step = (WIDTH - _LEFT - _RIGHT) / len(values)
    body = []
    for index, (name, value, marked) in enumerate(values):
        left, top = _LEFT + index * step, _y(value, highest)
        colour = "#d55e00" if marked else "#0072b2"
        box = (
            f'x="{left + step * 0.1:.1f}" y="{top:.1f}" width="{step * 0.8:.1f}" height="{HEIGHT - _BOTTOM - top:.1f}"'
        )
        body.append(f'<rect {box} fill="{colour}"><title>{escape(name)}: {number(value)}</title></rect>')
        if len(values) <= 24:
            body.append(
                f'<text x="{left + step / 2:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(name[-14:])}</text>'
            )
    return _frame(title, unit, highest, "".join(body))


def week(title: str, values: Sequence[tuple[int, float]]) -> str:
    """Return a heat map of the hours of a week (0 = Monday 00:00)."""
    if not values:
        return empty(title)
    highest = max(value for _, value in values) or 1.0
    known = dict(values)
    width, height = (WIDTH - _LEFT - _RIGHT) / 24, 26
    body = []
    for day, name in enumerate(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")):
        y = _TOP + day * height
        body.append(f'<text x="{_LEFT - 6}" y="{y + 17}" text-anchor="end">{name}</text>')
        for hour in range(24):
            value = known.get(day * 24 + hour)
            if value is None:
                continue
            body.append(
                f'<rect x="{_LEFT + hour * width:.1f}" y="{y}" width="{width - 1:.1f}" height="{height - 1}"'
                f' fill="#0072b2" fill-opacity="{0.06 + 0.94 * value / highest:.2f}">'
                f"<title>{name} {hour:02}:00: {number(value)}</title></rect>"
            )
    below = _TOP + 7 * height + 14
    body += [f'<text x="{_LEFT + hour * width:.1f}" y="{below}">{hour:02}:00</text>' for hour in range(0, 24, 3)]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"{''.join(body)}</svg>"
    )


def empty(title: str) -> str:
    """Return what stands in place of a chart without data."""
    return f'<p class="empty">{escape(title)}: no data yet.</p>'

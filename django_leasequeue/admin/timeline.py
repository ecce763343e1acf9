"""The events of one job drawn on a line: who held it, when nobody did, how each lease ended."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ..enums import EventKind
from ..metrics import charts
from .reading import LoggedEvent

_WIDTH, _HEIGHT, _SIDE, _LINE = 960, 92, 14, 44
#: Events that are drawn; of more the newest.
MAX_DRAWN = 150

_TONES = {
    EventKind.CLAIMED: 0,
    EventKind.EXTENDED: 0,
    EventKind.RELEASED: 1,
    EventKind.ACKED: 4,
    EventKind.FAILED: 3,
    EventKind.EXPIRED: 3,
    EventKind.DEAD_LETTERED: 3,
    EventKind.REDRIVEN: 2,
}
#: What is drawn for each kind, around (0, 0).
_MARKS = {
    EventKind.ENQUEUED: "M-4,0a4,4 0 1 0 8,0a4,4 0 1 0 -8,0z",
    EventKind.CLAIMED: "M-5,-7L7,0L-5,7z",
    EventKind.EXTENDED: "M-1,-8h2v16h-2z",
    EventKind.RELEASED: "M5,-7L-7,0L5,7z",
    EventKind.ACKED: "M-6,-6h12v12h-12z",
    EventKind.FAILED: "M-6,-4L-4,-6L0,-2L4,-6L6,-4L2,0L6,4L4,6L0,2L-4,6L-6,4L-2,0z",
    EventKind.EXPIRED: "M0,-7L7,6H-7z",
    EventKind.DEAD_LETTERED: "M0,-8L8,0L0,8L-8,0z",
    EventKind.REDRIVEN: "M0,-7L6,2H2V7H-2V2H-6z",
    EventKind.CANCELLED: "M-7,-2h14v4h-14z",
    EventKind.LINKED: "M-6,0a3,3 0 1 0 6,0a3,3 0 1 0 6,0a3,3 0 1 0 -6,0a3,3 0 1 0 -6,0z",
}
_HELD = (EventKind.CLAIMED, EventKind.EXTENDED)


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event in the table beside the drawing; ``after`` is the time since the one before.

    ``times`` is how many of its kind came one after the other: they are one line, the newest.
    """

    event: LoggedEvent
    after: timedelta | None
    gap: bool
    times: int = 1


def table_of(events: Sequence[LoggedEvent]) -> list[EventLine]:
    """Return the lines of the table, oldest first; ``gap`` where nobody held the job before this event."""
    lines: list[EventLine] = []
    before: LoggedEvent | None = None
    for event in events:
        if lines and before is not None and _goes_on(before, event):
            lines[-1] = replace(lines[-1], event=event, times=lines[-1].times + 1)
            before = event
            continue
        after = None if before is None else event.occurred_at - before.occurred_at
        free = before is not None and before.kind_number not in _HELD
        lines.append(EventLine(event, after, free and after is not None and after > timedelta(seconds=1)))
        before = event
    return lines


def _goes_on(before: LoggedEvent, event: LoggedEvent) -> bool:
    """Return whether an event only makes the same lease longer once more."""
    return before.kind_number == event.kind_number == EventKind.EXTENDED and before.claim == event.claim


def draw(events: Sequence[LoggedEvent], now: datetime, *, open_end: bool) -> SafeString:
    """Draw the timeline.

    Longer spans are drawn shorter than they were (by the logarithm), so that a try of milliseconds between waits of
    hours can be seen.

    Args:
        events: of one job, oldest first.
        now: where the line ends for a job that is not done.
        open_end: whether it is not done.
    """
    shown = events[-MAX_DRAWN:]
    if not shown:
        return SafeString("")
    times = [event.occurred_at for event in shown] + ([max(now, shown[-1].occurred_at)] if open_end else [])
    places = _places(times)
    spans = [(places[n], places[n + 1], shown[n].kind_number in _HELD) for n in range(len(places) - 1)]
    held = "".join(f"M{a:.1f},{_LINE - 6}H{b:.1f}v12H{a:.1f}z" for a, b, holds in spans if holds)
    free = "".join(f"M{a:.1f},{_LINE}H{b:.1f}" for a, b, holds in spans if not holds)
    marks = format_html_join(
        "",
        '<g class="lq-tone-{}" transform="translate({},{})"><title>{}</title><path class="{}" d="{}"/></g>',
        (
            (
                _TONES.get(EventKind(event.kind_number), 0),
                f"{x:.1f}",
                _LINE,
                _says(event),
                "lq-hollow" if event.kind_number in (EventKind.ENQUEUED, EventKind.RELEASED) else "lq-fill",
                _MARKS[EventKind(event.kind_number)],
            )
            for event, x in zip(shown, places, strict=False)
        ),
    )
    line = format_html(
        '<path class="lq-wait" d="{}"/><g class="lq-tone-0"><path class="lq-span" d="{}"/></g>{}{}',
        free,
        held,
        marks,
        _labels(times, places),
    )
    return charts.drawing("timeline", "Timeline of the leases", _describe(events), _WIDTH, _HEIGHT, line)


def _places(times: Sequence[datetime]) -> list[float]:
    widths = [1 + math.log10(1 + max((b - a).total_seconds(), 0) * 1000) for a, b in itertools.pairwise(times)]
    scale = (_WIDTH - 2 * _SIDE) / max(sum(widths), 1)
    places = [float(_SIDE)]
    for width in widths:
        places.append(places[-1] + width * scale)
    return places


def _labels(times: Sequence[datetime], places: Sequence[float]) -> SafeString:
    """Times below the line, as many as there is room for."""
    shown: list[tuple[str, int, str, str]] = []
    edge = -100.0
    for at, x in zip(times, places, strict=True):
        if x - edge >= 74:
            anchor = "start" if x < 40 else "end" if x > _WIDTH - 40 else "middle"
            shown.append((f"{x:.1f}", _HEIGHT - 12, anchor, timezone.localtime(at).strftime("%H:%M:%S")))
            edge = x
    return format_html_join("", '<text x="{}" y="{}" text-anchor="{}">{}</text>', shown)


def _says(event: LoggedEvent) -> str:
    parts = [event.what, timezone.localtime(event.occurred_at).strftime("%Y-%m-%d %H:%M:%S")]
    if event.node:
        parts.append(f"by {event.node}")
    if event.kind_number == EventKind.CLAIMED and event.deliveries:
        parts.append(f"delivery {event.deliveries}")
    return ", ".join(parts)


def _describe(events: Sequence[LoggedEvent]) -> str:
    counts: dict[str, int] = {}
    for event in events:
        counts[event.what] = counts.get(event.what, 0) + 1
    return ", ".join(f"{count} {what}" for what, count in counts.items()) + ". The table below has each."

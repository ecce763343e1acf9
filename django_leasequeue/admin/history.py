"""The history of one job: its attempts, and its lease events as a table and a drawing."""

from __future__ import annotations

import difflib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from ..engine import clock
from ..enums import EventKind
from ..metrics import charts
from ..models import Attempt, JobEvent

#: Lines of the difference of two failures, and the classes of those that were added or removed.
_DIFF_LINES, _DIFF_KINDS = 120, {"+": "lq-added", "-": "lq-removed"}
_ENDS = {EventKind.RELEASED, EventKind.ACKED, EventKind.FAILED, EventKind.EXPIRED}


def what(event: JobEvent) -> str:
    """Return the event in words, to be translated: a job that is given back because it failed has failed."""
    if event.kind == EventKind.RELEASED:
        detail = event.detail or {}
        word = gettext_noop("suspended") if detail.get("suspended") else gettext_noop("given back")
        return gettext_noop("failed") if detail.get("error_type") else word
    if event.kind == EventKind.FAILED:
        return gettext_noop("failed for good")
    if event.kind == EventKind.ACKED:
        return gettext_noop("completed")
    return EventKind(event.kind).label.replace("_", " ")


@dataclass(slots=True)
class AttemptLine:
    """One delivery: who had it, from when to when, how it ended, and what differs from the failed one before."""

    number: int
    delivery: int | None = None
    claim: int | None = None
    node: str | None = None
    host: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deadline: datetime | None = None
    extended: int = 0
    outcome: str = gettext_noop("running")
    retry_at: str | None = None
    error: Attempt | None = None
    failing: bool = False
    dead: bool = False
    waited: timedelta | None = None
    ran: timedelta | None = None
    changes: list[str] = field(default_factory=list)
    difference: list[tuple[str, str]] = field(default_factory=list)

    @property
    def held(self) -> timedelta | None:
        """From the claim to the end: the lease's time. What the task itself took is ``ran``."""
        return self.ended_at - self.started_at if self.started_at and self.ended_at else None


def attempts_of(events: Iterable[JobEvent], errors: Sequence[Attempt], hosts: dict[str, str]) -> list[AttemptLine]:
    """Return the attempts, oldest first, of events and errors of which the oldest may be gone; hosts by node."""
    found = _from_events(events)
    _join_errors(found, errors)
    for number, attempt in enumerate(found, 1):
        attempt.number = number
        attempt.host = hosts.get(attempt.node or "")
    _compare([attempt for attempt in found if attempt.error])
    return found


def _from_events(events: Iterable[JobEvent]) -> list[AttemptLine]:
    found: list[AttemptLine] = []
    for event in events:
        if event.kind == EventKind.CLAIMED:
            claimed = AttemptLine(0, event.deliveries, event.claim, event.node, started_at=event.occurred_at)
            claimed.deadline, claimed.waited = event.deadline, _span(event.waited)
            found.append(claimed)
            continue
        if event.kind == EventKind.DEAD_LETTERED and found:
            found[-1].dead = True
        if event.kind not in {*_ENDS, EventKind.EXTENDED}:
            continue
        if not found or (event.claim is not None and found[-1].claim != event.claim):
            # Its claim is older than the log.
            found.append(AttemptLine(0, event.deliveries, event.claim, event.node))
        _note(found[-1], event)
    return found


def _note(attempt: AttemptLine, event: JobEvent) -> None:
    if event.kind == EventKind.EXTENDED:
        attempt.extended += 1
        attempt.deadline = event.deadline
        return
    detail = event.detail or {}
    attempt.ended_at = event.occurred_at
    attempt.outcome = what(event)
    if detail.get("unstarted"):
        attempt.outcome = gettext_noop("given back unstarted")
    attempt.ran = _span(event.ran)
    attempt.retry_at = detail.get("available_at")
    attempt.failing = event.kind in {EventKind.EXPIRED, EventKind.FAILED} or bool(detail.get("error_type"))


def _span(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)


def _join_errors(found: list[AttemptLine], errors: Sequence[Attempt]) -> None:
    """Give the errors to the attempts that failed, from the newest back: both lists may lack their oldest."""
    failing = [attempt for attempt in found if attempt.failing]
    for attempt, error in zip(reversed(failing), reversed(errors), strict=False):
        attempt.error = error
    for error in reversed(errors[: max(len(errors) - len(failing), 0)]):
        found.insert(0, AttemptLine(0, node=error.node, outcome="failed", error=error, failing=True))


def _compare(failed: Sequence[AttemptLine]) -> None:
    for before, after in itertools.pairwise(failed):
        old, new = before.error, after.error
        if old is None or new is None:
            continue
        after.changes = [
            words.format(before=_short(getattr(old, name)), after=_short(getattr(new, name)))
            for name, words in (
                ("error_type", _("another error: {before} → {after}")),
                ("message", _("another message: {before} → {after}")),
                ("node", _("another worker: {before} → {after}")),
            )
            if getattr(old, name) != getattr(new, name)
        ]
        texts = [f"{each.error_type}: {each.message}\n{each.traceback}" for each in (old, new)]
        was, now = (text.splitlines()[:1_000] for text in texts)
        if was != now:
            different = itertools.islice(difflib.unified_diff(was, now, lineterm="", n=1), 2, 2 + _DIFF_LINES)
            after.difference = [(_DIFF_KINDS.get(line[:1], ""), line) for line in different]
            if old.traceback != new.traceback:
                after.changes.append(_("another traceback"))
        if not after.changes:
            after.changes = [_("nothing: the same error, by the same worker")]


def _short(value: str | None) -> str:
    text = value or _("none")
    return text if len(text) <= 80 else f"{text[:77]}..."


_WIDTH, _HEIGHT, _SIDE, _LINE = 960, 92, 14, 44
#: Events that are drawn; of more the newest.
MAX_DRAWN = 150

#: The number of the colour of each kind, and what is drawn for it, around (0, 0).
_MARKS = {
    EventKind.ENQUEUED: (0, "M-4,0a4,4 0 1 0 8,0a4,4 0 1 0 -8,0z"),
    EventKind.CLAIMED: (0, "M-5,-7L7,0L-5,7z"),
    EventKind.EXTENDED: (0, "M-1,-8h2v16h-2z"),
    EventKind.RELEASED: (1, "M5,-7L-7,0L5,7z"),
    EventKind.ACKED: (4, "M-6,-6h12v12h-12z"),
    EventKind.FAILED: (3, "M-6,-4L-4,-6L0,-2L4,-6L6,-4L2,0L6,4L4,6L0,2L-4,6L-6,4L-2,0z"),
    EventKind.EXPIRED: (3, "M0,-7L7,6H-7z"),
    EventKind.DEAD_LETTERED: (3, "M0,-8L8,0L0,8L-8,0z"),
    EventKind.REDRIVEN: (2, "M0,-7L6,2H2V7H-2V2H-6z"),
    EventKind.CANCELLED: (0, "M-7,-2h14v4h-14z"),
    EventKind.LINKED: (0, "M-6,0a3,3 0 1 0 6,0a3,3 0 1 0 6,0a3,3 0 1 0 -6,0a3,3 0 1 0 -6,0z"),
}
_HELD = (EventKind.CLAIMED, EventKind.EXTENDED)


def table_of(events: Sequence[JobEvent]) -> list[dict[str, Any]]:
    """Return the lines of the table beside the drawing, oldest first.

    ``after`` is the time since the event before, ``gap`` says that the job was not leased in it. Of extensions of one
    lease that follow each other the newest has a line, with their number as ``times``.
    """
    lines: list[dict[str, Any]] = []
    before: JobEvent | None = None
    for event in events:
        same = before is not None and (before.kind, before.claim) == (event.kind, event.claim)
        if lines and same and event.kind == EventKind.EXTENDED:
            lines[-1] |= {"event": event, "times": lines[-1]["times"] + 1}
            before = event
            continue
        after = None if before is None else event.occurred_at - before.occurred_at
        free = before is not None and before.kind not in _HELD
        gap = free and after is not None and after > timedelta(seconds=1)
        lines.append({"event": event, "what": what(event), "after": after, "gap": gap, "times": 1})
        before = event
    return lines


def draw(events: Sequence[JobEvent], now: datetime, *, open_end: bool) -> SafeString:
    """Draw the timeline.

    Longer spans are drawn shorter than they were (by the logarithm), so that a try of milliseconds between waits of
    hours can be seen.
    """
    shown = events[-MAX_DRAWN:]
    if not shown:
        return SafeString("")
    times = [clock.aware(event.occurred_at) for event in shown]
    if open_end:
        times.append(max(now, times[-1]))
    places = _places(times)
    spans = [(places[n], places[n + 1], shown[n].kind in _HELD) for n in range(len(places) - 1)]
    held = "".join(f"M{a:.1f},{_LINE - 6}H{b:.1f}v12H{a:.1f}z" for a, b, holds in spans if holds)
    free = "".join(f"M{a:.1f},{_LINE}H{b:.1f}" for a, b, holds in spans if not holds)
    marks = []
    for event, x in zip(shown, places, strict=False):
        tone, path = _MARKS[EventKind(event.kind)]
        fill = "lq-hollow" if event.kind in (EventKind.ENQUEUED, EventKind.RELEASED) else "lq-fill"
        marks.append((tone, f"{x:.1f}", _LINE, _says(event), fill, path))
    mark = '<g class="lq-tone-{}" transform="translate({},{})"><title>{}</title><path class="{}" d="{}"/></g>'
    spans_drawn = '<path class="lq-wait" d="{}"/><g class="lq-tone-0"><path class="lq-span" d="{}"/></g>{}{}'
    line = format_html(spans_drawn, free, held, format_html_join("", mark, marks), _labels(times, places))
    counts = ", ".join(f"{count} {_(words)}" for words, count in Counter(map(what, events)).items())
    described = _("{counts}. The table below has each.").format(counts=counts)
    return charts.drawing("timeline", _("Timeline of the leases"), described, _WIDTH, _HEIGHT, line)


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


def _says(event: JobEvent) -> str:
    parts = [_(what(event)), timezone.localtime(clock.aware(event.occurred_at)).strftime("%Y-%m-%d %H:%M:%S")]
    if event.node:
        parts.append(_("by {source}").format(source=event.node))
    if event.kind == EventKind.CLAIMED and event.deliveries:
        parts.append(_("delivery {number}").format(number=event.deliveries))
    return ", ".join(parts)

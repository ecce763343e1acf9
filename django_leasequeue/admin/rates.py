"""Throughput and waits of the last time as charts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from django.http import HttpRequest
from django.utils.safestring import SafeString

from ..engine.span import span as in_words
from ..metrics import charts
from .leaselog import Rate, Rates


class Span(NamedTuple):
    """A time that can be chosen: its name, how far back, and how fine (seconds)."""

    name: str
    seconds: int
    bucket: int

    @property
    def every(self) -> int:
        """Seconds after which a page with it asks for its figures anew: a longer time costs more, and changes less."""
        return max(5, self.bucket // 40)


HOUR = Span("1 h", 3_600, 120)
SPANS = (HOUR, Span("6 h", 21_600, 600), Span("24 h", 86_400, 2_400), Span("7 d", 604_800, 14_400))


def chosen(request: HttpRequest) -> Span:
    """Return the time that an address names, the last hour by default."""
    return next((each for each in SPANS if each.name == request.GET.get("range")), HOUR)


def buttons(span: Span) -> list[tuple[str, str, bool]]:
    """Return (name, address, whether it is chosen) of each time."""
    return [(each.name, f"?range={each.name.replace(' ', '+')}", each is span) for each in SPANS]


class Shown(NamedTuple):
    """The charts of one queue or of all together, and the figures in them: counts of ``words`` (``last 1 h``)."""

    throughput: SafeString
    waits: SafeString
    counts: Rate
    words: str
    wait: str
    note: str


def show(found: Rates, queue_id: int | None, span: Span = HOUR) -> Shown:
    """Draw the rates of one queue (``None``: all together)."""
    reach, whole = found.reach, found.of(queue_id)
    places = range(span.seconds // span.bucket)
    times = [reach.begin + timedelta(seconds=n * span.bucket) for n in places]
    counted = [reach.covers(at, span.bucket) for at in times]

    def series(label: str, value: Callable[[Rate], float]) -> charts.Series:
        values = [value(found.of(queue_id, n)) * 60 / counted[n] if counted[n] else None for n in places]
        return charts.Series(label, values)

    def waits(label: str, place: int) -> charts.Series:
        rows = [found.of(queue_id, n).waits for n in places]
        return charts.Series(label, [None if row is None else row[place] for row in rows])

    sampled = f"Of {whole.one_of:,} claims one was looked at." if whole.waits and whole.one_of > 1 else ""
    return Shown(
        charts.bars(
            "throughput",
            "Throughput, jobs a minute",
            times,
            [
                series("completed", lambda rate: rate.completed),
                series("failed, to be retried", lambda rate: rate.retried),
                series("failed for good", lambda rate: rate.ended),
            ],
            unit="jobs a minute",
            note=reach.note,
        ),
        charts.lines(
            "waits",
            "Wait from ready to claimed, seconds",
            times,
            [waits("p50", 0), waits("p95", 1), waits("p99", 2)],
            unit="seconds",
            note=sampled,
        ),
        whole,
        reach.words,
        wait_text(whole),
        reach.note,
    )


def spark(found: Rates, queue_id: int, span: Span = HOUR) -> SafeString:
    """Draw the completed jobs of one queue as a small line."""
    times = [found.reach.begin + timedelta(seconds=n * span.bucket) for n in range(span.seconds // span.bucket)]
    counted = [found.reach.covers(at, span.bucket) for at in times]
    values = [found.of(queue_id, n).completed * 60 / each if each else None for n, each in enumerate(counted)]
    most = max(value for value in values if value is not None)
    title = f"Completed a minute, {found.reach.words}: {charts.figure(values[-1])} now, at most {charts.figure(most)}"
    return charts.sparkline(values, title)


def wait_text(rate: Rate) -> str:
    """Return p50 and p99 of the waits in words."""
    if rate.waits is None:
        return "unknown" if rate.claimed else "no claims"
    return f"{in_words(rate.waits[0])} / {in_words(rate.waits[2])}"

"""Throughput and waits of the last hour as charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.utils.safestring import SafeString

from . import charts, figures
from .reading import RATE_EVENTS, Rate

#: How far back, and how fine (seconds).
SECONDS = 3_600
BUCKET = 120


class Rates(NamedTuple):
    """The charts of one queue or of all together, and the figures in them. Throughput is completed jobs a minute."""

    throughput: SafeString
    waits: SafeString
    acked: float
    failed: float
    wait: tuple[float, float] | None
    note: str


def show(rates: Sequence[Rate], queue_id: int | None, now: datetime) -> Rates:
    """Draw the rates of one queue (``None``: all together).

    Args:
        rates: what ``read_rates`` returned.
        queue_id: of the queue.
        now: when it was read.
    """
    mine = {rate.bucket: rate for rate in rates if rate.queue_id == queue_id}
    whole = mine.get(None)
    buckets = range(SECONDS // BUCKET)
    times = [now - timedelta(seconds=SECONDS - n * BUCKET) for n in buckets]

    def series(label: str, value: Callable[[Rate], float]) -> charts.Series:
        return charts.Series(label, [value(mine[n]) * 60 / BUCKET if n in mine else 0 for n in buckets])

    def waits(label: str, place: int) -> charts.Series:
        found = [mine[n].waits if n in mine else None for n in buckets]
        return charts.Series(label, [None if wait is None else round(wait[place], 4) for wait in found])

    note = ""
    if whole is not None and whole.factor > 1:
        note = (
            f"Estimated: of each {BUCKET} s at most {RATE_EVENTS:,} rows of the log are read; few jobs may be missed."
        )
    # A try that was the last one is given back (or expires), and is dead: it is drawn once.
    return Rates(
        charts.bars(
            "throughput",
            "Throughput of the last hour",
            times,
            [
                series("completed", lambda rate: rate.acked),
                series("given back or expired", lambda rate: max(rate.returned - rate.dead, 0.0)),
                series("failed or dead", lambda rate: rate.failed + rate.dead),
            ],
            unit="jobs a minute",
            note=note,
        ),
        charts.lines(
            "waits",
            "Wait until the first claim",
            times,
            [waits("p50", 0), waits("p99", 1)],
            unit="seconds since the job was ready",
        ),
        whole.acked if whole else 0.0,
        whole.failed + whole.dead if whole else 0.0,
        whole.waits if whole else None,
        note,
    )


def spark(rates: Sequence[Rate], queue_id: int) -> SafeString:
    """Draw the completed jobs of one queue as a small line."""
    mine = {rate.bucket: rate.acked * 60 / BUCKET for rate in rates if rate.queue_id == queue_id}
    values = [mine.get(n, 0.0) for n in range(SECONDS // BUCKET)]
    last, most = charts.figure(round(values[-1])), charts.figure(round(max(values)))
    title = f"Completed a minute in the last hour: {last} now, at most {most}"
    return charts.sparkline(values, title)


def wait_text(wait: tuple[float, float] | None) -> str:
    """Return p50 and p99 of the waits in words."""
    return "–" if wait is None else f"{figures.span(wait[0])} / {figures.span(wait[1])}"  # noqa: RUF001  (a dash)

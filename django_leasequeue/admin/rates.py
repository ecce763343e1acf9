"""Throughput, waits and runs of the last time, counted in the lease log, and their charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from ..engine import clock
from ..engine.operation import Statements, operation
from ..engine.queues.stats import Counts
from ..metrics import charts
from ..reaper import concerns
from ..templatetags.leasequeue_admin import count
from . import reading

#: Times that can be chosen: their names and seconds.
RANGES = {"15 min": 900, "1 h": 3_600, "6 h": 21_600, "24 h": 86_400, "7 d": 604_800}
#: The same, and no limit, as ``since`` of a filter.
SINCE = {gettext_noop("any time"): "", **{name: f"{seconds // 60}min" for name, seconds in RANGES.items()}}
#: Rows of the log that one look reads.
MAX_ROWS = 250_000
#: Numbers of jobs in them, about: a row has up to 1,000. A job that ran once is in three.
MAX_NUMBERS = 40_000_000
#: Jobs whose waits (and runs) a look takes to make percentiles of: evenly chosen where there are more.
SAMPLED = 50_000
MAX_TASKS = 300
#: Shares of the time that is asked for, tried one after the other until few enough rows are behind its beginning.
_SHARES = (1, 0.75, 0.5, 0.33, 0.25, 0.16, 0.1, 0.06, 0.03, 0)


class Reach(NamedTuple):
    """The time that was asked for, and since when it was counted: what is before is unknown."""

    begin: datetime
    since: datetime
    now: datetime

    @property
    def whole(self) -> bool:
        return self.since <= self.begin

    @property
    def words(self) -> str:
        """The time that was counted: ``last 1 h``, ``last 4 min``."""
        return _("last {time}").format(time=clock.span(self.now - self.since))

    def buckets(self, span: Span) -> tuple[list[datetime], list[float]]:
        """Return when each bucket begins, and how many seconds of it were counted."""
        ends = [self.begin + timedelta(seconds=end) for end in range(span.bucket, span.seconds + 1, span.bucket)]
        counted = [min(max((end - self.since).total_seconds(), 0.0), float(span.bucket)) for end in ends]
        return [end - timedelta(seconds=span.bucket) for end in ends], counted

    @property
    def note(self) -> str:
        """The words for a time that was not counted wholly; empty where it was."""
        if self.whole:
            return ""
        return _("Only the {time} could be counted: the log has too many rows, or begins then.").format(time=self.words)


class Rate(NamedTuple):
    """Counts of what happened to jobs in one bucket of time (``bucket`` null: all of it) of one queue (null: all).

    ``failed`` counts runs, ``retried`` those of them that are tried again, ``ended`` jobs that failed for good, without
    a run as well. ``waits`` are p50, p95 and p99 of the time from when a job was ready to its claim, in seconds;
    ``one_of`` is of how many claims one was looked at for them. A bucket of one queue has no waits.
    """

    queue_id: int | None
    bucket: int | None
    enqueued: int = 0
    claimed: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    ended: int = 0
    waits: tuple[float, float, float] | None = None
    one_of: int = 1


class Rates(NamedTuple):
    """The rates of a time. Buckets are counted from ``reach.begin``; those before ``reach.since`` are unknown."""

    reach: Reach
    rates: dict[tuple[int | None, int | None], Rate]

    def of(self, queue_id: int | None, bucket: int | None = None) -> Rate:
        """Return the rate of a queue (``None``: all together), in a bucket (``None``: all of the time)."""
        return self.rates.get((queue_id, bucket)) or Rate(queue_id, bucket)


class TaskRate(NamedTuple):
    """The runs of a task in a time; times in seconds, p50, p95 and p99, ``None`` where they are not known."""

    name: str | None
    runs: int
    completed: int
    failed: int
    retried: int
    ended: int
    waits: tuple[float, float, float] | None
    ran: tuple[float, float, float] | None
    one_of: int
    slowest: float | None
    slowest_seq: int | None
    failed_at: datetime | None
    failed_seq: int | None

    @property
    def share(self) -> str:
        """How many of its runs failed."""
        return f"{100 * self.failed / self.runs:.3g} %" if self.failed else ""


def _reach_steps(seconds: int, bucket: int, size: int) -> Statements[Reach]:
    """Find the time from which the log can be counted: the beginning of a bucket, or a time in the newest one."""
    ((now, jobs),) = yield "admin/event_sizes", {"seconds": seconds}
    size = min(size, int(MAX_NUMBERS / max(jobs or 1, 1)))
    oldest: datetime | None = None
    counts = dict.fromkeys(max(math.ceil(share * seconds / bucket), 1) for share in _SHARES)
    # Where the newest bucket alone has too many rows, a part of it, of a second at least, is counted.
    parts = [bucket / 2**n for n in range(1, bucket.bit_length())]
    for length in (*(bucket * number for number in counts), *parts):
        at = now - timedelta(seconds=length)
        ((few, oldest),) = yield "admin/event_reach", {"since": at, "size": size}
        if few:
            break
    if oldest is not None and oldest > at:
        after = math.ceil((oldest - at) / timedelta(seconds=bucket))
        at = max(at, min(at + after * timedelta(seconds=bucket), now - timedelta(seconds=bucket)))
    return Reach(now - timedelta(seconds=seconds), at, now)


@operation
def read_rates(queue_id: int | None, span: Span, *, size: int = MAX_ROWS) -> Statements[Rates]:
    """Count what happened lately to one queue, or to each and all together, in at most ``size`` rows of the log."""
    seconds, bucket = span.seconds, span.bucket
    reach = yield from _reach_steps(seconds, bucket, size)
    params = {"queue": queue_id, "since": reach.since, "bucket": bucket, "sampled": SAMPLED, "now": reach.now}
    rows = yield "admin/event_rates", params
    first = int((reach.since - reach.begin).total_seconds() / bucket + 1e-6)
    most = seconds // bucket - 1
    found: dict[tuple[int | None, int | None], Rate] = {}
    for queue, place, enqueued, claimed, completed, failed, retried, ended, waits, one_of in rows:
        # What happens in this very moment belongs to the last bucket.
        where = None if place is None else min(first + place, most)
        rate = Rate(queue, where, enqueued, claimed, completed, failed, retried, ended, _seconds(waits), one_of)
        found[queue, where] = rate if (queue, where) not in found else _sum(found[queue, where], rate)
    return Rates(reach, found)


@operation
def read_tasks(*, seconds: int, size: int = MAX_ROWS) -> Statements[tuple[Reach, list[TaskRate]]]:
    """Count the runs of each task lately, in at most ``size`` rows of the log; those with most runs come first."""
    reach = yield from _reach_steps(seconds, max(seconds // 60, 1), size)
    rows = yield "admin/task_rates", {"since": reach.since, "size": MAX_TASKS, "sampled": SAMPLED, "now": reach.now}
    return reach, [_task(row) for row in rows]


def _task(row: Sequence[Any]) -> TaskRate:
    name, runs, completed, failed, retried, ended, waits, ran, one_of, slowest, *rest = row
    longest, waited, took = None if slowest is None else slowest / 1_000, _seconds(waits), _seconds(ran)
    return TaskRate(name, runs, completed, failed, retried, ended, waited, took, one_of, longest, *rest)


def _seconds(values: Sequence[int | None] | None) -> tuple[float, float, float] | None:
    if not values or values[0] is None:
        return None
    p50, p95, p99 = (value / 1_000 for value in values if value is not None)
    return p50, p95, p99


def _sum(one: Rate, other: Rate) -> Rate:
    counts = {name: getattr(one, name) + getattr(other, name) for name in Rate._fields[2:8]}
    return one._replace(**counts, waits=one.waits or other.waits)


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


def part(found: Rates, span: Span) -> dict[str, Any]:
    """Return what a page with rates shows: the rates, the times to choose from, how often it asks for them anew."""
    ranges = [(each.name, f"?range={each.name.replace(' ', '+')}", each is span) for each in SPANS]
    return {"rates": show(found, span), "ranges": ranges, "every": span.every}


def show(found: Rates, span: Span) -> dict[str, Any]:
    """Draw what happened to all jobs that were read; its figures are counts of ``words`` (``last 1 h``)."""
    reach, whole = found.reach, found.of(None)
    times, counted = reach.buckets(span)

    def series(label: str, value: Callable[[Rate], float]) -> charts.Series:
        values = [value(found.of(None, n)) * 60 / each if each else None for n, each in enumerate(counted)]
        return charts.Series(label, values)

    def waits(label: str, place: int) -> charts.Series:
        rows = [found.of(None, n).waits for n in range(len(times))]
        return charts.Series(label, [None if row is None else row[place] for row in rows])

    sampled = ""
    if whole.waits and whole.one_of > 1:
        sampled = _("One of {number} claims was looked at.").format(number=count(whole.one_of))
    ended = [
        series(_("completed"), lambda rate: rate.completed),
        series(_("failed, to be retried"), lambda rate: rate.retried),
        series(_("failed for good"), lambda rate: rate.ended),
    ]
    unit, waited = _("jobs a minute"), [waits("p50", 0), waits("p95", 1), waits("p99", 2)]
    throughput = charts.chart(
        "throughput", _("Throughput, jobs a minute"), times, ended, unit=unit, note=reach.note, stacked=True
    )
    title = _("Wait from ready to claimed, seconds")
    drawn = charts.chart("waits", title, times, waited, unit=_("seconds"), note=sampled)
    figures = {"counts": whole, "words": reach.words, "wait": _wait(whole)}
    return {"throughput": throughput, "waits": drawn, **figures}


def _spark(found: Rates, queue_id: int, span: Span) -> SafeString:
    counted = found.reach.buckets(span)[1]
    values = [found.of(queue_id, n).completed * 60 / each if each else None for n, each in enumerate(counted)]
    most = max(value for value in values if value is not None)
    title = _("Completed a minute, {time}: {now} now, at most {most}").format(
        time=found.reach.words, now=charts.figure(values[-1]), most=charts.figure(most)
    )
    return charts.sparkline(values, title)


def _wait(rate: Rate) -> str:
    if rate.waits is None:
        return _("unknown") if rate.claimed else _("no claims")
    return f"{clock.span(rate.waits[0])} / {clock.span(rate.waits[2])}"


def lines_of(counts: Sequence[Counts], found: Rates, span: Span) -> list[dict[str, Any]]:
    """Return the lines of a list of queues."""
    health = reading.read(concerns.read_health([each.queue_id for each in counts])) if counts else {}
    now = clock.now()
    return [
        {
            "counts": each,
            "label": f"{each.project}/{each.queue}" if each.project else each.queue,
            "spark": _spark(found, each.queue_id, span),
            "wait": _wait(found.of(each.queue_id)),
            "concerns": concerns.of_queue(each, health.get(each.queue_id), now),
        }
        for each in counts
    ]

"""All queues and workers on one page that refreshes itself."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse

from .. import engine
from ..engine import clock
from ..engine.queues.stats import Counts, Totals, counts_by_id
from ..engine.span import span
from ..reaper import concerns
from . import leaselog, pages, rates, reading
from .queue_list import CAP, PAGE, lines_of

#: Projects whose samples are added up.
_PROJECTS = 1_000
_PLACES = ("ready", "delayed", "in flight", "dead letters")


def overview(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Answer with the overview."""
    now = clock.now()
    chosen = rates.chosen(request)
    found = reading.read_log(leaselog.read_rates(None, seconds=chosen.seconds, bucket=chosen.bucket))
    totals = reading.read(engine.totals(size=_PROJECTS))
    counts = _busiest(found)
    lines = lines_of(counts, found, now, chosen)
    workers = reading.read_workers() if pages.allowed(request, "view_worker") else []
    alive = [worker for worker in workers if not worker.gone]
    server = reading.read(reading.read_server())
    context: dict[str, Any] = {
        "cards": _depths(totals, counts),
        "rates": rates.show(found, None, chosen),
        "ranges": rates.buttons(chosen),
        "every": chosen.every,
        "reach": found.reach,
        "lines": lines,
        "workers": alive[:20],
        "worker_count": len(alive),
        "show_workers": pages.allowed(request, "view_worker"),
        "running": sum(len(worker.running) for worker in alive),
        "server": server,
        "concerns": sorted(
            [
                *concerns.of_server(server.leader, server.age, server.pid, server.application),
                *(concern for line in lines for concern in line.concerns),
                *concerns.of_workers((worker.node, worker.silent) for worker in workers),
            ],
            key=lambda concern: concern.level != "error",
        ),
    }
    return pages.page(request, site, "overview.html", context, title="Overview")


def _depths(totals: list[Totals], counts: list[Counts]) -> list[tuple[str, str, str]]:
    """Return (label, figure, note) of how much is where: counted now where the list has all queues, else as sampled."""
    queues = sum(total.queues for total in totals)
    found = [("queues", f"{queues:,}", "")]
    exact = len(counts) == queues and all(each.exact for each in counts)
    sampled = min((total.sampled_at for total in totals if total.sampled_at), default=None)
    if exact:
        sums, note = [sum(each) for each in zip(*map(_of, counts), strict=True)] or [0] * 4, "jobs, now"
    elif sampled is None or any(total.sampled_at is None for total in totals):
        return found + [(name, "unknown", "not sampled yet: is a reaper running?") for name in _PLACES]
    else:
        sums = [sum(each) for each in zip(*((t.ready, t.delayed, t.in_flight, t.dead) for t in totals), strict=True)]
        note = f"jobs, sampled {span(clock.now() - sampled)} ago"
    return found + [(name, f"{figure:,}", note) for name, figure in zip(_PLACES, sums, strict=True)]


def _of(counts: Counts) -> tuple[int, int, int, int]:
    return counts.ready, counts.delayed, counts.in_flight, counts.dead


def _busiest(found: leaselog.Rates) -> list[Counts]:
    """Return the figures of the queues with most events lately, filled up with the first by name."""
    busy = sorted(
        (rate for rate in found.rates.values() if rate.bucket is None and rate.queue_id is not None),
        key=lambda rate: -(rate.enqueued + rate.claimed + rate.ended),
    )
    ids = [rate.queue_id for rate in busy[:PAGE] if rate.queue_id is not None]
    if len(ids) < PAGE:
        ids += [each.id for each in reading.read(reading.read_queues(None, "", None, PAGE)) if each.id not in ids]
    counts = reading.read(counts_by_id(ids[:PAGE], cap=CAP)) if ids else {}
    return [counts[each] for each in ids[:PAGE] if each in counts]

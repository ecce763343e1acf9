"""All queues and workers on one page that refreshes itself."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse

from .. import engine
from ..engine import clock
from ..engine.queues.stats import counts_by_id
from . import concerns, pages, rates, reading
from .queue_list import CAP, PAGE, lines_of

#: Projects whose samples are added up.
_PROJECTS = 1_000


def overview(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Answer with the overview."""
    now = clock.now()
    found = reading.read_log(reading.read_rates(None, bucket=rates.BUCKET))
    shown = rates.show(found, None, now)
    totals = reading.read(engine.totals(size=_PROJECTS))
    lines = lines_of(_busiest(found), found, now)
    workers = reading.read(reading.read_workers()) if pages.allowed(request, "view_worker") else []
    alive = [worker for worker in workers if not worker.gone]
    server = reading.read(reading.read_server())
    context: dict[str, Any] = {
        "cards": [
            ("queues", f"{sum(total.queues for total in totals):,}", ""),
            ("ready", f"{sum(total.ready for total in totals):,}", "as sampled"),
            ("delayed", f"{sum(total.delayed for total in totals):,}", "as sampled"),
            ("in flight", f"{sum(total.in_flight for total in totals):,}", "as sampled"),
            ("dead letters", f"{sum(total.dead for total in totals):,}", "as sampled"),
            ("completed in the last hour", f"{'about ' if shown.note else ''}{shown.acked:,.0f}", ""),
            ("wait p50 / p99", rates.wait_text(shown.wait), "last hour"),
        ],
        "rates": shown,
        "lines": lines,
        "workers": alive[:20],
        "worker_count": len(alive),
        "show_workers": pages.allowed(request, "view_worker"),
        "running": sum(len(worker.running) for worker in alive),
        "server": server,
        "sampled_at": min((total.sampled_at for total in totals if total.sampled_at), default=None),
        "concerns": [
            *concerns.of_server(server),
            *(concern for line in lines for concern in line.concerns),
            *concerns.of_workers(workers),
        ],
    }
    return pages.page(request, site, "overview.html", context, title="Overview")


def _busiest(found: list[reading.Rate]) -> list[Any]:
    """Return the figures of the queues with most events in the last hour, filled up with the first by name."""
    busy = sorted(
        (rate for rate in found if rate.bucket is None and rate.queue_id is not None),
        key=lambda rate: -(rate.enqueued + rate.claimed + rate.dead),
    )
    ids = [rate.queue_id for rate in busy[:PAGE] if rate.queue_id is not None]
    if len(ids) < PAGE:
        ids += [each.id for each in reading.read(reading.read_queues(None, "", None, PAGE)) if each.id not in ids]
    counts = reading.read(counts_by_id(ids[:PAGE], cap=CAP)) if ids else {}
    return [counts[each] for each in ids[:PAGE] if each in counts]

"""The page of one queue: depth, age, throughput and waits, warnings, options, what can be done to it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from .. import engine
from ..engine import clock
from ..engine.queues.stats import counts_by_id
from ..metrics import charts
from ..models import Queue
from ..reaper import concerns
from . import leaselog, pages, rates, reading
from .reading import capped

#: Places of the chart of depths: samples are spread over them.
_PLACES = 60
#: Samples that are read, the newest: of a longer time the chart may begin later.
_SAMPLES = 5_000


def queue_page(request: HttpRequest, site: AdminSite, queue: Queue) -> HttpResponse:
    """Answer with the page of a queue."""
    counts = reading.read(counts_by_id([queue.pk])).get(queue.pk)
    info = reading.read(engine.get(queue.name, project=queue.project))
    if counts is None or info is None:
        raise Http404
    now = clock.now()
    health = reading.read(concerns.read_health([queue.pk])).get(queue.pk)
    server = reading.read(reading.read_server())
    chosen = rates.chosen(request)
    found = reading.read_log(leaselog.read_rates(queue.pk, seconds=chosen.seconds, bucket=chosen.bucket))
    dead_letters = pages.url_or_none(site, "leasequeue_deadletters")
    context: dict[str, Any] = {
        "queue": queue,
        "counts": counts,
        "ready": capped(counts.ready),
        "delayed": capped(counts.delayed),
        "waiting": capped(counts.waiting) if counts.waiting else "",
        "in_flight": capped(counts.in_flight),
        "dead": capped(counts.dead),
        "records": capped(counts.records),
        "concerns": [
            *concerns.of_queue(counts, health, now),
            *concerns.of_server(server.leader, server.age, server.pid, server.application),
        ],
        "health": health,
        "rates": rates.show(found, None, chosen),
        "ranges": rates.buttons(chosen),
        "every": chosen.every,
        "depths": _depths(reading.read(reading.read_samples(queue.pk, chosen.seconds, _SAMPLES)), now, chosen.seconds),
        "options": sorted(info.config.items()),
        "dead_letters_url": dead_letters,
        "can_pause": pages.allowed(request, "pause_queue"),
        "can_change": pages.allowed(request, "change_queue"),
        "can_purge": pages.allowed(request, "purge_queue"),
    }
    crumbs = [pages.Crumb("Queues", pages.url(site, "leasequeue_queue_changelist"))]
    return pages.page(request, site, "queue.html", context, title=f"Queue {queue}", crumbs=crumbs)


def _depths(samples: list[reading.Sample], now: datetime, seconds: int) -> SafeString | str:
    """Draw the samples of the last time; places without a sample repeat the one before: only changes are sampled."""
    if not samples:
        return ""
    times = [now - timedelta(seconds=seconds * (1 - (n + 1) / _PLACES)) for n in range(_PLACES)]
    rows: list[reading.Sample | None] = []
    left = list(samples)
    last: reading.Sample | None = None
    for at in times:
        while left and left[0].at <= at:
            last = left.pop(0)
        rows.append(last)
    return charts.lines(
        "depths",
        "Depth as sampled, jobs",
        times,
        [
            charts.Series("ready", [row and row.ready for row in rows]),
            charts.Series("delayed", [row and row.delayed for row in rows]),
            charts.Series("in flight", [row and row.leased for row in rows]),
            charts.Series("dead", [row and row.dead for row in rows]),
        ],
        unit="jobs",
    )

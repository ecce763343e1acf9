"""The list of queues: figures, warnings, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from ..engine import clock
from ..engine.queues.stats import Counts, counts_by_id
from ..reaper import concerns
from . import leaselog, pages, rates, reading
from .reading import capped

#: Queues of one page. Each count is exact up to here: more would cost a page of many queues too much.
PAGE = 25
CAP = 1_000


class ListedQueue(NamedTuple):
    """One queue as a list shows it."""

    id: int
    label: str
    type: str
    paused: bool
    ready: str
    delayed: str
    in_flight: str
    dead: str
    oldest_at: datetime | None
    spark: SafeString
    wait: str
    concerns: list[concerns.Concern]


def lines_of(
    counts: Sequence[Counts], found: leaselog.Rates, now: datetime, span: rates.Span = rates.HOUR
) -> list[ListedQueue]:
    """Return the lines of a list of queues."""
    health = reading.read(concerns.read_health([each.queue_id for each in counts])) if counts else {}
    return [
        ListedQueue(
            each.queue_id,
            f"{each.project}/{each.queue}" if each.project else each.queue,
            each.type,
            each.paused_at is not None,
            capped(each.ready, CAP),
            capped(each.delayed, CAP),
            capped(each.in_flight, CAP),
            capped(each.dead, CAP),
            each.oldest_at,
            rates.spark(found, each.queue_id, span),
            rates.wait_text(found.of(each.queue_id)),
            concerns.of_queue(each, health.get(each.queue_id), now),
        )
        for each in counts
    ]


def queue_list(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Answer with the list of queues."""
    prefix = request.GET.get("q", "").strip()[:255].replace("\x00", "")
    after = (request.GET.get("after_project", ""), request.GET["after"]) if request.GET.get("after") else None
    names = reading.read(reading.read_queues(None, prefix, after, PAGE + 1))
    shown = names[:PAGE]
    counts = reading.read(counts_by_id([each.id for each in shown], cap=CAP)) if shown else {}
    now = clock.now()
    found = reading.read_log(leaselog.read_rates(None, seconds=rates.HOUR.seconds, bucket=rates.HOUR.bucket))
    context: dict[str, Any] = {
        "lines": lines_of([counts[each.id] for each in shown if each.id in counts], found, now),
        "reach": found.reach,
        "q": prefix,
        "first": f"?{urlencode({'q': prefix})}" if after else None,
        "next": None,
    }
    if len(names) > PAGE:
        last = shown[-1]
        context["next"] = f"?{urlencode({'q': prefix, 'after_project': last.project, 'after': last.name})}"
    return pages.page(request, site, "queues.html", context, title="Queues")

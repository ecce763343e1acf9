"""Queues in the admin: the list, the page of one with its charts, what can be done to it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.safestring import SafeString

from .. import engine
from ..conf.queue_options import OPTIONS
from ..engine import clock
from ..engine.queues.stats import Counts, counts_by_id
from ..exceptions import LeaseQueueError
from ..metrics import charts
from ..models import Queue, QueueStat
from ..reaper import concerns
from . import pages, rates, reading
from .audit import record
from .base import PageAdmin
from .queue_form import QueueForm, in_words, label_of
from .reading import capped

#: Queues of one page, and entries that are counted of those with many jobs, all together.
PAGE, COUNTED = 25, 200_000


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
    counts: Sequence[Counts], found: rates.Rates, now: datetime, span: rates.Span = rates.HOUR
) -> list[ListedQueue]:
    """Return the lines of a list of queues."""
    health = reading.read(concerns.read_health([each.queue_id for each in counts])) if counts else {}
    return [
        ListedQueue(
            each.queue_id,
            f"{each.project}/{each.queue}" if each.project else each.queue,
            each.type,
            each.paused_at is not None,
            capped(each.ready, each.cap),
            capped(each.delayed, each.cap),
            capped(each.in_flight, each.cap),
            capped(each.dead, each.cap),
            each.oldest_at,
            rates.spark(found, each.queue_id, span),
            rates.wait_text(found.of(each.queue_id)),
            concerns.of_queue(each, health.get(each.queue_id), now),
        )
        for each in counts
    ]


def errors_first(found: Iterable[concerns.Concern]) -> list[concerns.Concern]:
    """Return warnings in the order in which a page shows them: it folds all but three."""
    return sorted(found, key=lambda concern: concern.level != "error")


#: Places of the chart of depths: samples are spread over them.
_PLACES = 60
#: Samples that are read, the newest: of a longer time the chart may begin later.
_SAMPLES = 5_000


def _depths(queue: Queue, now: datetime, seconds: int) -> SafeString | str:
    """Draw the samples of the last time; places without a sample repeat the one before: only changes are sampled."""
    newest = queue.samples.filter(sampled_at__gte=now - timedelta(seconds=seconds)).order_by("-sampled_at")
    left = list(newest[:_SAMPLES])[::-1]
    if not left:
        return ""
    times = [now - timedelta(seconds=seconds * (1 - (n + 1) / _PLACES)) for n in range(_PLACES)]
    rows: list[QueueStat | None] = []
    last: QueueStat | None = None
    for at in times:
        while left and left[0].sampled_at <= at:
            last = left.pop(0)
        rows.append(last)
    return charts.lines(
        "depths",
        "Depth as sampled, jobs",
        times,
        [
            charts.Series("ready", [None if row is None else row.ready for row in rows]),
            charts.Series("delayed", [None if row is None else row.delayed for row in rows]),
            charts.Series("in flight", [None if row is None else row.leased for row in rows]),
            charts.Series("dead", [None if row is None else row.dead for row in rows]),
        ],
        unit="jobs",
    )


#: What can be purged, in words.
PURGEABLE = ("ready", "delayed", "dead")
#: Jobs of one batch of a purge, and seconds after which it stops and says how far it came.
_BATCH = 5_000
_SECONDS = 8.0

#: What is done to a queue, and the permission that it needs.
_ACTIONS = {"pause": "pause_queue", "resume": "pause_queue", "purge": "purge_queue"}


@admin.register(Queue)
class QueueAdmin(PageAdmin[Queue]):
    """Queues are made by their first job, the settings or the API; here they are looked at and steered."""

    def get_urls(self) -> list[URLPattern]:
        return [
            path("", self.view(self.changelist), name="leasequeue_queue_changelist"),
            path("<int:pk>/change/", self.view(self.change), name="leasequeue_queue_change"),
            path("<int:pk>/options/", self.view(self.options), name="leasequeue_queue_options"),
            path("<int:pk>/act/", self.act_view(self.act), name="leasequeue_queue_act"),
        ]

    def changelist(self, request: HttpRequest) -> HttpResponse:
        """The queues by name."""
        pages.require(request, "view_queue")
        prefix = request.GET.get("q", "").strip()[:255].replace("\x00", "")
        after = (request.GET.get("after_project", ""), request.GET["after"]) if request.GET.get("after") else None
        names = reading.read_queues(PAGE + 1, prefix, after)
        shown = names[:PAGE]
        counts = reading.read(counts_by_id([each.id for each in shown], budget=COUNTED)) if shown else {}
        now = clock.now()
        found = reading.read_log(rates.read_rates(None, seconds=rates.HOUR.seconds, bucket=rates.HOUR.bucket))
        lines = lines_of([counts[each.id] for each in shown if each.id in counts], found, now)
        context: dict[str, Any] = {
            "lines": lines,
            "concerns": errors_first(concern for line in lines for concern in line.concerns),
            "reach": found.reach,
            "q": prefix,
            "first": f"?{urlencode({'q': prefix})}" if after else None,
            "next": None,
        }
        if len(names) > PAGE:
            last = shown[-1]
            context["next"] = f"?{urlencode({'q': prefix, 'after_project': last.project, 'after': last.name})}"
        return pages.page(request, self.admin_site, "queues.html", context, title="Queues")

    def change(self, request: HttpRequest, pk: int) -> HttpResponse:
        """One queue."""
        pages.require(request, "view_queue")
        queue = _find(pk)
        counts = reading.read(counts_by_id([queue.pk])).get(queue.pk)
        info = reading.read(engine.get(queue.name, project=queue.project))
        if counts is None or info is None:
            raise Http404
        now = clock.now()
        health = reading.read(concerns.read_health([queue.pk])).get(queue.pk)
        server = reading.read(reading.read_server())
        chosen = rates.chosen(request)
        found = reading.read_log(rates.read_rates(queue.pk, seconds=chosen.seconds, bucket=chosen.bucket))
        dead_letters = pages.url_or_none(self.admin_site, "leasequeue_deadletters")
        context: dict[str, Any] = {
            "queue": queue,
            "counts": counts,
            "ready": capped(counts.ready, counts.cap),
            "delayed": capped(counts.delayed, counts.cap),
            "waiting": capped(counts.waiting, counts.cap) if counts.waiting else "",
            "in_flight": capped(counts.in_flight, counts.cap),
            "dead": capped(counts.dead, counts.cap),
            "records": capped(counts.records, counts.cap),
            "concerns": errors_first(
                [
                    *concerns.of_queue(counts, health, now),
                    *concerns.of_server(server.leader, server.age, server.pid, server.application),
                ]
            ),
            "health": health,
            "rates": rates.show(found, None, chosen),
            "ranges": rates.buttons(chosen),
            "every": chosen.every,
            "depths": _depths(queue, now, chosen.seconds),
            "options": sorted(info.config.items()),
            "changed": [
                (label_of(name), in_words(name, info.config[name]), option.help)
                for name, option in OPTIONS.items()
                if option.group and info.config[name] != option.default
            ],
            "dead_letters_url": dead_letters,
            "can_pause": pages.allowed(request, "pause_queue"),
            "can_change": pages.allowed(request, "change_queue"),
            "can_purge": pages.allowed(request, "purge_queue"),
        }
        crumbs = [pages.Crumb("Queues", pages.url(self.admin_site, "leasequeue_queue_changelist"))]
        return pages.page(request, self.admin_site, "queue.html", context, title=f"Queue {queue}", crumbs=crumbs)

    def options(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The form of its options."""
        pages.require(request, "view_queue", "change_queue")
        queue = _find(pk)
        info = reading.read(engine.get(queue.name, project=queue.project))
        if info is None:
            raise Http404
        form = QueueForm(info.config, queue.name, data=request.POST or None)
        if request.method == "POST" and form.is_valid():
            changed = form.changed()
            with transaction.atomic(using=reading.alias()):
                if changed:
                    options = {name: form.cleaned_data[name] for name in form.config if name in form.cleaned_data}
                    engine.run(engine.configure(queue.name, project=queue.project, **options), using=reading.alias())
                    _record(request, "edit_queue", queue, detail={"changed": changed})
            messages.success(request, f"Changed: {', '.join(changed)}." if changed else "Nothing was changed.")
            return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_queue_change", pk))
        crumbs = [
            pages.Crumb("Queues", pages.url(self.admin_site, "leasequeue_queue_changelist")),
            pages.Crumb(str(queue), pages.url(self.admin_site, "leasequeue_queue_change", pk)),
        ]
        context = {"queue": queue, "form": form}
        return pages.page(
            request, self.admin_site, "queue_options.html", context, title=f"Options of {queue}", crumbs=crumbs
        )

    def act(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Pause, resume or purge: a POST with ``action``; a purge also with ``states`` and the name typed."""
        action = pages.action_of(request, _ACTIONS, "view_queue")
        queue = _find(pk)
        try:
            if action == "purge":
                self._purge(request, queue)
            else:
                self._pause(request, queue, action)
        except LeaseQueueError as error:
            messages.error(request, str(error))
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_queue_change", pk))

    def _pause(self, request: HttpRequest, queue: Queue, action: str) -> None:
        with transaction.atomic(using=reading.alias()):
            paused = action == "pause"
            engine.run(engine.pause(queue.name, paused=paused, project=queue.project), using=reading.alias())
            _record(request, action, queue)
        after = "nothing is claimed from it" if action == "pause" else "its jobs are claimed again"
        messages.success(request, f"{queue} is {action}d: {after}.")

    def _purge(self, request: HttpRequest, queue: Queue) -> None:
        states = [state for state in PURGEABLE if state in request.POST.getlist("states")]
        if request.POST.get("typed", "").strip() != queue.name or not states:
            messages.error(request, "Nothing was removed: choose what is to go, and type the name of the queue.")
            return
        before = reading.read(counts_by_id([queue.pk])).get(queue.pk)
        detail = {"states": states, "there": None if before is None else before.ready + before.delayed + before.dead}
        gone, since, left = 0, time.monotonic(), True
        while left and time.monotonic() - since < _SECONDS:
            purge = engine.purge(queue.name, states=states, project=queue.project, size=_BATCH)
            with transaction.atomic(using=reading.alias()):
                if left := bool(removed := engine.run(purge, using=reading.alias())):
                    # A line for each batch: what is removed and its line stand together, whatever happens next.
                    _record(request, "purge", queue, counts={"removed": removed}, detail=detail)
            gone += removed
        rest = " There is more: the time for one request was over. Purge again to go on." if left else ""
        messages.add_message(
            request, messages.WARNING if left else messages.SUCCESS, f"{gone:,} jobs of {queue} were removed.{rest}"
        )


def _find(pk: int) -> Queue:
    queue = reading.instance(Queue, pk)
    if queue is None:
        raise Http404(f"There is no queue {pk}.")
    return queue


def _record(request: HttpRequest, action: str, queue: Queue, **facts: dict[str, Any]) -> None:
    record(request, action, obj=queue, project=queue.project, queue=queue.name, **facts)

"""The pages over all queues, Overview and Tasks.

Django's list of apps shows models: each of the two has one, without a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.apps.registry import Apps
from django.contrib import admin
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from .. import engine
from ..engine import clock
from ..engine.clock import span
from ..engine.queues.stats import Counts, Totals, counts_by_id
from ..reaper import concerns
from . import pages, rates, reading
from .pages import M, ReadOnlyAdmin
from .queues import COUNTED, PAGE, errors_first
from .rates import TaskRate

#: Queues and workers that the page lists; the warnings are those of ``PAGE`` queues.
_LINES = 6
#: Projects whose samples are added up.
_PROJECTS = 1_000
_PLACES = ("ready", "delayed", "in flight", "dead letters")


def _depths(totals: list[Totals], counts: list[Counts]) -> list[tuple[str, str, str]]:
    """Return (label, figure, note) of how much is where: counted now where the list has all queues, else as sampled."""
    queues = sum(total.queues for total in totals)
    found = [("queues", f"{queues:,}", "")]
    exact = len(counts) == queues and all(each.exact for each in counts)
    sampled = max((total.sampled_at for total in totals if total.sampled_at), default=None)
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


def _busiest(found: rates.Rates) -> list[Counts]:
    """Return the figures of the queues with most events lately, filled up with the first by name."""
    busy = sorted(
        (rate for rate in found.rates.values() if rate.bucket is None and rate.queue_id is not None),
        key=lambda rate: -(rate.enqueued + rate.claimed + rate.ended),
    )
    ids = [rate.queue_id for rate in busy[:PAGE] if rate.queue_id is not None]
    if len(ids) < PAGE:
        ids += [each.id for each in reading.read_queues(PAGE) if each.id not in ids]
    counts = reading.read(counts_by_id(ids[:PAGE], budget=COUNTED)) if ids else {}
    return [counts[each] for each in ids[:PAGE] if each in counts]


_DEFAULT = "1 h"


class SortColumn(NamedTuple):
    """A column that the list can be sorted by, the largest value first."""

    name: str
    label: str
    value: Callable[[TaskRate], float]


class ListedTask(NamedTuple):
    """One task as the list shows it; times in words."""

    task: TaskRate
    share: str
    waits: list[str]
    ran: list[str]


COLUMNS = (
    SortColumn("runs", "Runs", lambda task: task.runs),
    SortColumn("failed", "Failed runs", lambda task: task.failed),
    SortColumn("retried", "Retried", lambda task: task.retried),
    SortColumn("ended", "Failed for good", lambda task: task.ended),
    SortColumn("wait", "Wait p50 / p95 / p99", lambda task: task.waits[2] if task.waits else -1),
    SortColumn("ran", "Run p50 / p95 / p99", lambda task: task.ran[2] if task.ran else -1),
    SortColumn("slowest", "Slowest", lambda task: -1 if task.slowest is None else task.slowest),
    SortColumn("newest", "Newest failure", lambda task: task.failed_at.timestamp() if task.failed_at else -1),
)


def _query(chosen: str, sort: str) -> str:
    return f"?{urlencode({'range': chosen, 'sort': sort})}"


def _line(task: TaskRate) -> ListedTask:
    share = f"{100 * task.failed / task.runs:.3g} %" if task.failed else ""
    return ListedTask(task, share, _words(task.waits), _words(task.ran))


def _words(times: tuple[float, float, float] | None) -> list[str]:
    return ["unknown"] if times is None else [span(each) for each in times]


#: Apart from the models of the project: migrations, permissions and content types know nothing of these two.
_APART = Apps()


class _Meta:
    apps = _APART
    app_label = "leasequeue"
    managed = False


class Overview(models.Model):  # noqa: DJ008  (there are no instances)
    """Stands for the overview."""

    class Meta(_Meta):
        verbose_name_plural = "overview"


class Task(models.Model):  # noqa: DJ008  (there are no instances)
    """Stands for the list of tasks."""

    class Meta(_Meta):
        verbose_name_plural = "tasks"


class OnePageAdmin(ReadOnlyAdmin[M]):
    """Base of the admin of a model that is one page, with the address of its list and one of our own name."""

    names: tuple[str, str]

    def get_urls(self) -> list[URLPattern]:
        return [path("", self.view(self.page), name=f"leasequeue_{name}") for name in self.names]

    def page(self, request: HttpRequest) -> HttpResponse:
        raise NotImplementedError


@admin.register(Overview)
class OverviewAdmin(OnePageAdmin[Overview]):
    """All queues and workers on one page."""

    permission = "view_queue"
    names = ("overview", "overview_changelist")

    def page(self, request: HttpRequest) -> HttpResponse:
        pages.require(request, self.permission)
        now = clock.now()
        chosen = rates.chosen(request)
        found = reading.read_log(rates.read_rates(None, seconds=chosen.seconds, bucket=chosen.bucket))
        totals = reading.read(engine.totals(size=_PROJECTS))
        counts = _busiest(found)
        lines = rates.lines_of(counts, found, now, chosen)
        workers = reading.read_workers() if pages.allowed(request, "view_worker") else []
        alive = [worker for worker in workers if not worker.gone]
        server = reading.read(reading.read_server())
        warnings = [
            *concerns.of_server(server.leader, server.age, server.pid, server.application),
            *(concern for line in lines for concern in line.concerns),
            *concerns.of_workers((worker.node, worker.silent) for worker in workers),
        ]
        context: dict[str, Any] = {
            "cards": _depths(totals, counts),
            "rates": rates.show(found, None, chosen),
            "ranges": rates.buttons(chosen),
            "every": chosen.every,
            "reach": found.reach,
            "lines": lines[:_LINES],
            "workers": alive[:_LINES],
            "worker_count": len(alive),
            "show_workers": pages.allowed(request, "view_worker"),
            "running": sum(len(worker.running) for worker in alive),
            "server": server,
            "concerns": errors_first(warnings),
        }
        return pages.page(request, self.admin_site, "overview.html", context, title="Overview")


@admin.register(Task)
class TaskAdmin(OnePageAdmin[Task]):
    """The runs of each task."""

    permission = "view_job"
    names = ("tasks", "task_changelist")

    def page(self, request: HttpRequest) -> HttpResponse:
        pages.require(request, self.permission)
        chosen = request.GET.get("range", _DEFAULT)
        chosen = chosen if chosen in rates.RANGES else _DEFAULT
        column = next((each for each in COLUMNS if each.name == request.GET.get("sort")), COLUMNS[0])
        found = reading.read_log(rates.read_tasks(seconds=rates.RANGES[chosen]))
        one_of = max((task.one_of for task in found.tasks), default=1)
        context: dict[str, Any] = {
            "lines": [_line(task) for task in sorted(found.tasks, key=column.value, reverse=True)],
            "columns": [(each, _query(chosen, each.name), each is column) for each in COLUMNS],
            "ranges": [(name, _query(name, column.name), name == chosen) for name in rates.RANGES],
            "chosen": chosen,
            "reach": found.reach,
            "sampled": f"Of many jobs a part, evenly chosen: at least one in {one_of:,}." if one_of > 1 else "",
            "most": rates.MAX_TASKS if len(found.tasks) == rates.MAX_TASKS else None,
        }
        return pages.page(request, self.admin_site, "tasks.html", context, title="Tasks")

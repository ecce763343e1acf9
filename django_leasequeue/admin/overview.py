"""The pages over all queues, Overview and Tasks.

Django's list of apps shows models: each of the two has one, without a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.apps.registry import Apps
from django.contrib import admin
from django.db import models
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..engine import clock
from ..engine.jobs.pausing import list_paused
from ..engine.queues.stats import Counts, Totals, counts_by_id
from ..reaper import concerns
from ..templatetags.leasequeue_admin import count
from . import pages, rates, reading, taskpage
from .queues import COUNTED, PAGE, errors_first
from .rates import TaskRate

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Queues and workers that the page lists; the warnings are those of ``PAGE`` queues.
_LINES = 6
#: The figures: name of their list, attribute, label.
_PLACES = (
    ("ready", "ready", gettext_lazy("ready")),
    ("delayed", "delayed", gettext_lazy("delayed")),
    ("in flight", "in_flight", gettext_lazy("in flight")),
    ("dead letters", "dead", gettext_lazy("dead letters")),
)


def _depths(totals: list[Totals], counts: list[Counts]) -> list[tuple[str, str, str, str]]:
    """Return (name of its list, label, figure, note) of how much is where.

    It is counted now where the list has all queues, else as sampled.
    """
    queues = sum(total.queues for total in totals)
    found = [("queues", _("queues"), count(queues), "")]
    sampled = max((total.sampled_at for total in totals if total.sampled_at), default=None)
    of: Sequence[Counts | Totals] = totals
    if len(counts) == queues and all(each.exact for each in counts):
        of, note = counts, _("jobs, now")
    elif sampled is None or any(total.sampled_at is None for total in totals):
        note = _("not sampled yet: is a reaper running?")
        return found + [(name, str(label), count(None), note) for name, _field, label in _PLACES]
    else:
        note = _("jobs, sampled {time} ago").format(time=clock.span(clock.now() - sampled))
    sums = {field: sum(getattr(each, field) for each in of) for _name, field, _label in _PLACES}
    return found + [(name, str(label), count(sums[field]), note) for name, field, label in _PLACES]


def _busiest(found: rates.Rates) -> list[Counts]:
    """Return the figures of the queues where many jobs died or most happened lately, filled up with the first."""
    busy = sorted(
        (rate for rate in found.rates.values() if rate.bucket is None and rate.queue_id is not None),
        key=lambda rate: -(rate.enqueued + rate.claimed + rate.ended),
    )
    lively = [rate.queue_id for rate in busy if rate.queue_id is not None]
    ids = list(dict.fromkeys([*reading.deadly(), *lively]))[:PAGE]
    if len(ids) < PAGE:
        ids += [each.id for each in reading.read_queues(PAGE) if each.id not in ids]
    counts = reading.read(counts_by_id(ids[:PAGE], budget=COUNTED)) if ids else {}
    return [counts[each] for each in ids[:PAGE] if each in counts]


#: The columns of the list of tasks, and the value that each sorts by, the largest first.
COLUMNS: dict[str, tuple[StrOrPromise, Callable[[TaskRate], float]]] = {
    "runs": (gettext_lazy("Runs"), lambda task: task.runs),
    "failed": (gettext_lazy("Failed runs"), lambda task: task.failed),
    "retried": (gettext_lazy("Retried"), lambda task: task.retried),
    "ended": (gettext_lazy("Failed for good"), lambda task: task.ended),
    "wait": (gettext_lazy("Wait p50 / p95 / p99"), lambda task: task.waits[2] if task.waits else -1),
    "ran": (gettext_lazy("Run p50 / p95 / p99"), lambda task: task.ran[2] if task.ran else -1),
    "slowest": (gettext_lazy("Slowest"), lambda task: -1 if task.slowest is None else task.slowest),
    "newest": (gettext_lazy("Newest failure"), lambda task: task.failed_at.timestamp() if task.failed_at else -1),
}


#: Apart from the models of the project: migrations, permissions and content types know nothing of these two.
_APART = Apps()


class _Meta:
    apps = _APART
    app_label = "leasequeue"
    managed = False


class Overview(models.Model):  # noqa: DJ008  (there are no instances)
    """Stands for the overview."""

    class Meta(_Meta):
        verbose_name_plural = gettext_lazy("overview")


class Task(models.Model):  # noqa: DJ008  (there are no instances)
    """Stands for the list of tasks."""

    class Meta(_Meta):
        verbose_name_plural = gettext_lazy("tasks")


@admin.register(Overview)
class OverviewAdmin(pages.ReadOnly, pages.PageAdmin[Overview]):
    """All queues and workers on one page."""

    permission = "view_queue"

    def get_urls(self) -> list[URLPattern]:
        names = ("leasequeue_overview", "leasequeue_overview_changelist")
        page = self.view(self.overview, self.permission, takes=("range",))
        counts = path("counts/", self.view(self.counts), name="leasequeue_counts")
        return [*(path("", page, name=name) for name in names), counts]

    def counts(self, request: HttpRequest) -> HttpResponse:
        """Answer with the figures of the navigation, by page, of those that the user may see."""
        may = {name: permission for _, name, permission in pages.NAVIGATION}
        figures = {name: text for name, text in reading.figures().items() if request.user.has_perm(may[name])}
        return JsonResponse(figures, headers={"Cache-Control": "no-store"})

    def overview(self, request: HttpRequest) -> HttpResponse:
        chosen = rates.chosen(request)
        found = reading.read_log(rates.read_rates(None, chosen))
        totals = reading.totals()
        counts = _busiest(found)
        lines = rates.lines_of(counts, found, chosen)
        workers = reading.read_workers() if pages.allowed(request, "view_worker") else []
        alive = [worker for worker in workers if not worker.gone]
        version, of_server = reading.server()
        may = pages.allowed(request, "view_recurringtask")
        recurring = concerns.recurring_problems(reading.alias()) if may else []
        urls = self._lists(request, chosen)
        warnings = [
            *of_server,
            *(concerns.Concern("error", text) for text in recurring),
            *(concern for line in lines for concern in line["concerns"]),
            *concerns.of_workers(workers),
            *(concerns.of_paused(reading.read(list_paused(size=PAGE))) if pages.allowed(request, "view_job") else ()),
        ]
        context: dict[str, Any] = {
            "cards": [(*card, urls[name]) for name, *card in _depths(totals, counts)],
            "urls": urls,
            **rates.part(found, chosen),
            "reach": found.reach,
            "lines": lines[:_LINES],
            "workers": alive[:_LINES],
            "worker_count": len(alive),
            "running": sum(len(worker.running) for worker in alive),
            "server": {"version": version},
            "concerns": errors_first(warnings),
        }
        return self.page(request, "overview.html", context, title=_("Overview"))

    def _lists(self, request: HttpRequest, chosen: rates.Span) -> pages.Lists:
        found = pages.Lists(queues=self.url_or_none("leasequeue_queue_changelist"))
        if pages.allowed(request, "view_job"):
            for label, state in (("ready", "ready"), ("delayed", "delayed"), ("in flight", "leased")):
                found[label] = self.url_or_none("leasequeue_job_changelist", state=state)
            found["dead letters"] = self.url_or_none("leasequeue_deadletters")
            for sort in ("runs", "failed", "ended"):
                found[sort] = self.url_or_none("leasequeue_tasks", range=chosen.name, sort=sort)
        return found


@admin.register(Task)
class TaskAdmin(pages.ReadOnly, pages.PageAdmin[Task]):
    """The runs of each task."""

    permission = "view_job"

    def get_urls(self) -> list[URLPattern]:
        names = ("leasequeue_tasks", "leasequeue_task_changelist")
        act = path("one/act/", self.act_view(partial(taskpage.act, self)), name="leasequeue_task_act")
        page = self.view(self.tasks, self.permission, takes=("range", "sort"))
        one = self.view(partial(taskpage.show, self), self.permission, takes=("name", "range"))
        return [*(path("", page, name=name) for name in names), path("one/", one, name="leasequeue_task"), act]

    def tasks(self, request: HttpRequest) -> HttpResponse:
        chosen, sort = request.GET.get("range", "1 h"), request.GET.get("sort", "runs")
        chosen, sort = chosen if chosen in rates.RANGES else "1 h", sort if sort in COLUMNS else "runs"

        def address(name: str, column: str) -> str:
            return f"?{urlencode({'range': name, 'sort': column})}"

        reach, tasks = reading.read_log(rates.read_tasks(seconds=rates.RANGES[chosen]))
        one_of = max((task.one_of for task in tasks), default=1)
        context: dict[str, Any] = {
            "tasks": sorted(tasks, key=COLUMNS[sort][1], reverse=True),
            "columns": [(label, address(chosen, name), name == sort) for name, (label, _) in COLUMNS.items()],
            "ranges": [(name, address(name, sort), name == chosen) for name in rates.RANGES],
            "reach": reach,
            "sampled": _("The times are of an even sample: at least one job in {number}.").format(number=count(one_of))
            if one_of > 1
            else "",
            "most": rates.MAX_TASKS if len(tasks) == rates.MAX_TASKS else None,
        }
        return self.page(request, "tasks.html", context, title=_("Tasks"))

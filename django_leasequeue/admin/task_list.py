"""The list of tasks: runs, failures, waits and run times of each in a time of choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse

from ..engine.span import span
from . import leaselog, pages, reading
from .leaselog import TaskRate

#: The times that can be chosen: their names and seconds.
RANGES = {"15 min": 900, "1 h": 3_600, "24 h": 86_400, "7 d": 604_800}
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


def task_list(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Answer with the list of tasks."""
    chosen = request.GET.get("range", _DEFAULT)
    chosen = chosen if chosen in RANGES else _DEFAULT
    column = next((each for each in COLUMNS if each.name == request.GET.get("sort")), COLUMNS[0])
    found = reading.read_log(leaselog.read_tasks(seconds=RANGES[chosen]))
    one_of = max((task.one_of for task in found.tasks), default=1)
    context: dict[str, Any] = {
        "lines": [_line(task) for task in sorted(found.tasks, key=column.value, reverse=True)],
        "columns": [(each, _query(chosen, each.name), each is column) for each in COLUMNS],
        "ranges": [(name, _query(name, column.name), name == chosen) for name in RANGES],
        "chosen": chosen,
        "reach": found.reach,
        "sampled": f"Waits and runs are those of one job in {one_of:,}, evenly chosen." if one_of > 1 else "",
        "most": leaselog.MAX_TASKS if len(found.tasks) == leaselog.MAX_TASKS else None,
    }
    return pages.page(request, site, "tasks.html", context, title="Tasks")


def _query(chosen: str, sort: str) -> str:
    return f"?{urlencode({'range': chosen, 'sort': sort})}"


def _line(task: TaskRate) -> ListedTask:
    share = f"{100 * task.failed / task.runs:.3g} %" if task.failed else ""
    return ListedTask(task, share, _words(task.waits), _words(task.ran))


def _words(times: tuple[float, float, float] | None) -> list[str]:
    return ["unknown"] if times is None else [span(each) for each in times]

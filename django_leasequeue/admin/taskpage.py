"""The page of a task: its runs, its errors, how long it took over time, its limits, its schedule, its code."""

from __future__ import annotations

import inspect
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from .. import conf
from ..engine.jobs.pausing import list_paused, pause_task, resume_task
from ..engine.operation import Statements, operation
from ..exceptions import InvalidOption
from ..metrics import charts
from ..models import RecurringTask
from ..tasks.api import task_backends
from ..tasks.lookup import find_task
from . import audit, pages, rates, reading

#: Errors that the page names.
_CAUSES = 10


class _Times(NamedTuple):
    """A row of ``admin/task_times``."""

    bucket: int
    completed: int
    failed: int
    ran: list[int] | None


class Code(NamedTuple):
    """Where a task's function is: its file and line, the address of that (empty: none).

    Also the name of its limit, and the project of its backend.
    """

    place: str
    url: str
    limit: str
    project: str


def code_of(name: str) -> Code | None:
    """Return where the code of a task is, as this process has it; ``None`` if it does not find it."""
    with suppress(Exception):  # whatever the import of a module of the host's raises
        task: Any = find_task(name)
        path, line = Path(inspect.getsourcefile(task.func) or ""), inspect.getsourcelines(task.func)[1]
        base = Path(getattr(settings, "BASE_DIR", None) or Path.cwd())
        shown = path.relative_to(base) if path.is_relative_to(base) else path
        limit = getattr(task, "limit", None)
        url = (conf.settings.ADMIN.SOURCE or "").replace("{path}", shown.as_posix()).replace("{line}", str(line))
        project = task_backends[task.backend].config.project  # type: ignore[attr-defined]
        return Code(f"{shown}:{line}", url, limit.name if limit else "", project)
    return None


class _Error(NamedTuple):
    """A row of ``admin/task_errors``."""

    error_type: str | None
    fingerprint: str | None
    runs: int
    newest_at: datetime
    newest_seq: int


@operation
def _read_errors(name: str, reach: rates.Reach) -> Statements[list[_Error]]:
    params = {"task": name, "since": reach.since, "size": _CAUSES, "now": reach.now}
    return [_Error._make(row) for row in (yield "admin/task_errors", params)]


@operation
def _read_times(name: str, reach: rates.Reach, bucket: int) -> Statements[list[_Times]]:
    params = {"task": name, "since": reach.since, "bucket": bucket, "now": reach.now}
    return [_Times._make(row) for row in (yield "admin/task_times", params)]


def _draw(found: list[_Times], reach: rates.Reach, span: rates.Span) -> list[Any]:
    times, counted = reach.buckets(span)
    first = len(counted) - sum(1 for each in counted if each)
    rows = {min(first + each.bucket, len(counted) - 1): each for each in found}

    def rate(place: int, field: str) -> float | None:
        seconds = counted[place]
        return getattr(rows.get(place), field, 0) * 60 / seconds if seconds else None

    def seconds(place: int, share: int) -> float | None:
        row = rows.get(place)
        return row.ran[share] / 1_000 if row is not None and row.ran else None

    places = range(len(times))
    counts = [charts.Series(_(label), [rate(place, label) for place in places]) for label in ("completed", "failed")]
    shares = enumerate(("p50", "p95", "p99"))
    runs = [charts.Series(label, [seconds(place, share) for place in places]) for share, label in shares]
    unit = _("runs a minute")
    return [
        charts.chart(
            "runs", _("Runs that ended, runs a minute"), times, counts, unit=unit, note=reach.note, stacked=True
        ),
        charts.chart("times", _("How long they ran, seconds"), times, runs, unit=_("seconds")),
    ]


def show(admin: pages.PageAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Answer with the page of the task ``name``."""
    name = request.GET.get("name", "").replace("\x00", "")[:512]
    if not name:
        raise Http404("Name a task.")
    span = rates.chosen(request)
    reach, tasks = reading.read_log(rates.read_tasks(seconds=span.seconds))
    schedules = RecurringTask.objects.using(reading.alias()).filter(task=name)
    code, pauses = code_of(name), reading.read(list_paused(name=name))
    project = code.project if code else ""
    context: dict[str, Any] = {
        "name": name,
        "task": next((task for task in tasks if task.name == name), None),
        "reach": reach,
        "charts": _draw(reading.read_log(_read_times(name, reach, span.bucket)), reach, span),
        "ranges": [
            (each.name, admin.url("leasequeue_task", name=name, range=each.name), each is span) for each in rates.SPANS
        ],
        "code": code,
        "limit_url": admin.url_or_none("leasequeue_limit_changelist", q=code.limit) if code and code.limit else None,
        "schedules": list(schedules[:20]) if pages.allowed(request, "view_recurringtask") else [],
        "causes": reading.read_log(_read_errors(name, reach)),
        "project": project,
        "pauses": pauses,
        "paused": any(each.project == project for each in pauses),
    }
    crumbs = [(_("Tasks"), "leasequeue_tasks")]
    return admin.page(request, "task.html", context, title=_("Task {task}").format(task=name), crumbs=crumbs)


_ACTIONS = dict.fromkeys(("pause", "resume"), "pause_task")


def act(admin: pages.PageAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Pause or resume the task ``name`` of ``project``: a POST with ``action``."""
    action = pages.action_of(request, _ACTIONS, "view_job")
    name, project = request.POST.get("name", ""), request.POST.get("project", "")
    try:
        with transaction.atomic(using=reading.alias()):
            if action == "pause":
                done = reading.run(pause_task(name, project=project, by=request.user.get_username()))
            else:
                done = reading.run(resume_task(name, project=project))
            if done:
                audit.record(request, f"{action}_task", project=project, detail={"name": name})
    except InvalidOption as error:
        messages.error(request, str(error))
        return admin.redirect("leasequeue_tasks")
    words = _("{task} is resumed: its jobs start again.")
    if action == "pause":
        words = _("{task} is paused: none of its jobs starts.")
    messages.success(request, words.format(task=name))
    return admin.redirect("leasequeue_task", name=name)

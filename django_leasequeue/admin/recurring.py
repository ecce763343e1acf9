"""Recurring tasks in the admin: last and next runs, how the last one ended, run now, pause."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Prefetch, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..engine import codec
from ..engine.span import span
from ..models import Job, RecurringTask
from ..reaper.concerns import BOUNDS
from ..reaper.recurring.declared import load
from ..reaper.recurring.duty import DueTask, enqueue_task
from ..reaper.status import recurring
from ..templatetags.leasequeue_admin import ago, moment
from . import pages, reading
from .audit import record
from .base import ListAdmin, column


def _next_tick(task: RecurringTask) -> SafeString | str:
    at = task.next_tick_at
    if not task.enabled:
        return ""
    return "not planned yet" if at is None else format_html("{} ({})", moment(at), ago(at))


_SCHEDULE = '<span class="lq-mono">{}</span> <small>{}</small>'
_TIMES = (
    column("schedule", lambda task: format_html(_SCHEDULE, task.schedule, task.timezone), "schedule"),
    column("last tick", lambda task: moment(task.last_tick_at) if task.last_tick_at else "never", "last_tick_at"),
    column("next tick", _next_tick, "next_tick_at"),
)


@admin.register(RecurringTask)
class RecurringTaskAdmin(ListAdmin[RecurringTask]):
    """Recurring tasks come from the settings or the database; here they are looked at, run and paused."""

    list_display = ["name", "condition", "runs", *_TIMES[:2], "job", _TIMES[2]]
    search_fields = ["name", "task"]
    actions = ["run", "pause", "resume"]
    every = 15
    readonly_fields = (
        "name", "condition", "runs", "schedule", "timezone", "backend", "priority", "last_tick_at",
        "job", "next_tick_at", "from_settings",
    )  # fmt: skip
    fields = readonly_fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[RecurringTask]:
        last = Prefetch("last_job", Job.objects.only("seq", "state", "task"))
        return recurring(reading.alias()).prefetch_related(last)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return pages.allowed(request, "change_recurringtask")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        pages.require(request, "view_recurringtask")
        late = recurring(reading.alias()).filter(Q(enabled=True, late__gt=BOUNDS.late))[:10]
        why = "is a reaper running, and can its schedule and task be read?"
        notes = [("error", f"{task.name} is overdue since {span(task.late)}: {why}") for task in late]
        return super().changelist_view(request, {"notes": notes, **(extra_context or {})})

    @admin.display(description="state", ordering="enabled")
    def condition(self, task: RecurringTask) -> SafeString | str:
        if not task.enabled:
            return pages.badge("paused")
        return pages.badge("failed", "overdue") if (task.late or 0) > BOUNDS.late else ""

    @admin.display(description="task", ordering="task")
    def runs(self, task: RecurringTask) -> SafeString | str:
        address = pages.url_or_none(self.admin_site, "leasequeue_job_changelist")
        text = pages.link(task.task, address and f"{address}?{urlencode({'state': 'any', 'task': task.task})}")
        return format_html("{} <small>{}</small>", text, task.queue_name)

    @admin.display(description="its job")
    def job(self, task: RecurringTask) -> SafeString | str:
        if task.last_tick_at is None:
            return ""
        if task.last_seq is None:
            return "unknown"
        found = task.last_job
        if found is not None and found.task != task.task:
            return "unknown"  # the backend writes to another database
        state = pages.badge("record", "ended, not kept") if found is None else pages.badge(found.state)
        return format_html("{} {}", pages.job_link(self.admin_site, task.last_seq), state)

    @admin.action(description="Run the selected tasks now", permissions=["operate"])
    def run(self, request: HttpRequest, queryset: QuerySet[RecurringTask]) -> None:
        """Enqueue each once; its next tick stays."""
        self._each(request, "run", queryset)

    @admin.action(description="Pause the selected tasks", permissions=["operate"])
    def pause(self, request: HttpRequest, queryset: QuerySet[RecurringTask]) -> None:
        """Enqueue no tick of them until they go on."""
        self._each(request, "pause", queryset)

    @admin.action(description="Let the selected tasks go on", permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[RecurringTask]) -> None:
        """Go on with their next ticks."""
        self._each(request, "resume", queryset)

    def _each(self, request: HttpRequest, action: str, tasks: QuerySet[RecurringTask]) -> None:
        for task in tasks:
            try:
                with transaction.atomic(using=reading.alias()):
                    text = _run(task) if action == "run" else _pause(task, paused=action == "pause")
                    record(request, f"{action}_recurring", obj=task, queue=task.queue_name, detail={"name": task.name})
            except Exception as error:  # noqa: BLE001  (whatever a task's backend raises is to be read on the page)
                messages.error(request, f"{task.name} was not enqueued: {type(error).__name__}: {error}")
            else:
                messages.success(request, text)


def _run(task: RecurringTask) -> str:
    wanted = DueTask(
        task.task, codec.dumps(task.args), codec.dumps(task.kwargs), task.backend, task.queue_name, task.priority
    )
    result = enqueue_task(wanted)
    return f"{task.name} was enqueued as {result.id}; its next tick stays."


def _pause(task: RecurringTask, *, paused: bool) -> str:
    """Pause a recurring task, or let it go on; while it is paused the settings that declare it do not change it."""
    task.enabled = not paused
    declared = {each.name: each.task for each in load()[0]}
    task.from_settings = not paused and declared.get(task.name) == task.task
    task.save(update_fields=["enabled", "from_settings"])
    return f"{task.name} is paused: no tick is enqueued." if paused else f"{task.name} goes on with its next tick."

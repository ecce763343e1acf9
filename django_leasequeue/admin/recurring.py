"""Recurring tasks in the admin: last and next runs, how the last one ended, run now, pause."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from ..engine import codec
from ..engine.operation import Steps, operation
from ..models import RecurringTask
from ..reaper.concerns import BOUNDS
from ..reaper.recurring.declared import load
from ..reaper.recurring.enqueue import DueTask, enqueue_task
from . import pages, reading
from .audit import record
from .base import PageAdmin

#: Recurring tasks of the page.
MAX_TASKS = 500
_ACTIONS = dict.fromkeys(("run", "pause", "resume"), "change_recurringtask")


class ListedRecurring(NamedTuple):
    """A recurring task; ``late`` is how many seconds its next tick is overdue (below 0: not yet)."""

    id: int
    name: str
    schedule: str
    timezone: str
    task: str
    backend: str
    queue_name: str
    enabled: bool
    from_settings: bool
    last_tick_at: datetime | None
    next_tick_at: datetime | None
    late: float | None
    seq: int | None
    state_number: int | None

    @property
    def overdue(self) -> bool:
        """Whether it should have run and did not."""
        return self.enabled and self.late is not None and self.late > BOUNDS.late

    @property
    def outcome(self) -> str:
        """The end of the last tick's job, or the state that it is in."""
        if self.seq is None:
            return "unknown"
        return "ended, not kept" if self.state_number is None else reading.state_label(self.state_number)


@operation
def read_recurring() -> Steps[list[ListedRecurring]]:
    """Read the recurring tasks, the next due first, at most ``MAX_TASKS``."""
    rows = yield "admin/recurring", {"size": MAX_TASKS}
    return [ListedRecurring._make(row) for row in rows]


@admin.register(RecurringTask)
class RecurringTaskAdmin(PageAdmin[RecurringTask]):
    """Recurring tasks come from the settings or the database; here they are looked at, run and paused."""

    def page_urls(self) -> list[URLPattern]:
        """The pages of recurring tasks."""
        return [
            path("", self.view(self.changelist), name="leasequeue_recurringtask_changelist"),
            path("<int:pk>/change/", self.view(self.change), name="leasequeue_recurringtask_change"),
            path("<int:pk>/act/", self.act_view(self.act), name="leasequeue_recurringtask_act"),
        ]

    def changelist(self, request: HttpRequest) -> HttpResponse:
        """The recurring tasks, the next due first."""
        pages.require(request, "view_recurringtask")
        lines = reading.read_log(read_recurring())
        context = {
            "lines": lines,
            "late": [line for line in lines if line.overdue],
            "most": MAX_TASKS if len(lines) == MAX_TASKS else None,
            "can_change": pages.allowed(request, "change_recurringtask"),
        }
        return pages.page(request, self.admin_site, "recurring.html", context, title="Recurring tasks")

    def change(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Redirect to the list: Django's log of actions links here."""
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_recurringtask_changelist"))

    def act(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Run, pause or resume a recurring task: a POST with ``action``."""
        action = pages.action_of(request, _ACTIONS, "view_recurringtask")
        task = reading.instance(RecurringTask, pk)
        if task is None:
            raise Http404(f"There is no recurring task {pk}.")
        try:
            with transaction.atomic(using=reading.alias()):
                text = _run(task) if action == "run" else _pause(task, paused=action == "pause")
                record(request, f"{action}_recurring", obj=task, queue=task.queue_name, detail={"name": task.name})
        except Exception as error:  # noqa: BLE001  (whatever a task's backend raises is to be read on the page)
            messages.error(request, f"{task.name} was not enqueued: {type(error).__name__}: {error}")
        else:
            messages.success(request, text)
        return HttpResponseRedirect(pages.url(self.admin_site, "leasequeue_recurringtask_changelist"))


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

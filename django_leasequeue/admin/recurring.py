"""Recurring tasks in the admin: last and next runs, how the last one ended, run now, pause, add and change."""

from __future__ import annotations

from typing import Any, cast
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..engine import clock, codec
from ..engine.limits import seq_of
from ..exceptions import InvalidOption
from ..models import Job, RecurringTask
from ..models.recurring import parse
from ..reaper.concerns import BOUNDS, FAILED, recurring, recurring_problems
from ..reaper.declarations import check, find_task, home_of, task_of, template_of
from ..reaper.ticks import DueTask, enqueue_due
from ..tasks.arguments import check_arguments
from ..tasks.lookup import schedulable_tasks
from ..templatetags.leasequeue_admin import ago, link, moment
from . import audit, pages, reading
from .pages import JsonField, ListAdmin, column

#: Next times that a page shows.
TIMES = 10


def _next_tick(task: RecurringTask) -> SafeString | str:
    if not task.enabled or task.ended_at:
        return ""
    at = task.next_tick_at
    return _("not planned yet") if at is None else format_html("{} ({})", moment(at), ago(at))


#: The fields that a preview of the next times reads.
PREVIEWED = ("schedule", "timezone", "phase", "until")


def next_times(schedule: str, timezone: str, phase: str, until: str) -> SafeString:
    """Return the next times of a schedule as a list, in its time zone; of one that cannot be read, why."""
    try:
        plan, at = parse(schedule, timezone, seq_of(phase) or 0), clock.now()
        times: list[tuple[str, str, str]] = []
        last = forms.DateTimeField(required=False).clean(until)
        while len(times) < TIMES and not (last and plan.next(at) > last):
            at = plan.next(at)
            local = at.astimezone(ZoneInfo(timezone)).strftime("%a %Y-%m-%d %H:%M:%S %Z")
            times.append((at.isoformat(), local, ago(at)))
    except (InvalidOption, forms.ValidationError) as error:
        why = error.messages[0] if isinstance(error, forms.ValidationError) else error
        return format_html('<p class="lq-note lq-note-error">{}</p>', why)
    line = '<li><time datetime="{}">{}</time> <small>{}</small></li>'
    return format_html('<ol class="lq-times">{}</ol>', format_html_join("", line, times))


class RecurringForm(forms.ModelForm):
    """A recurring task of the database, checked as the settings' are, and its arguments against the function."""

    class Meta:
        model = RecurringTask
        fields = [
            "name", "task", "schedule", "timezone", "args", "kwargs", "queue_name", "priority", "backend", "grace",
            "until", "times", "phase", "jitter", "expires", "enabled",
        ]  # fmt: skip
        help_texts = {
            "task": gettext_lazy(
                "dotted path of a function with @task(schedulable=True); superusers: of any with @task"
            ),
            "schedule": gettext_lazy(
                "a cron line (30 2 * * *), @hourly, @daily, @weekly, @monthly, @yearly, or: every 30 seconds"
            ),
            "timezone": gettext_lazy("of a cron line, such as Europe/Berlin"),
            "args": gettext_lazy("JSON, a list"),
            "kwargs": gettext_lazy("JSON, names and values"),
            "queue_name": gettext_lazy("empty: the task's own"),
            "priority": gettext_lazy("empty: the task's own"),
            "backend": gettext_lazy("alias in TASKS; empty: the task's own"),
            "grace": gettext_lazy("seconds; a tick that is later is skipped. Empty: the interval, at most an hour"),
            "until": gettext_lazy("no run is later: 2030-12-31 18:00"),
            "times": gettext_lazy("how many runs at most, with those before; empty: no end"),
            "phase": gettext_lazy("seconds by which the ticks of an interval are shifted"),
            "jitter": gettext_lazy("seconds; each run is delayed by 0 to so many"),
            "expires": gettext_lazy("seconds; a run that has not started by then is removed. Empty: the task's own"),
            "enabled": gettext_lazy("off: no ticks"),
        }
        field_classes = {"args": JsonField, "kwargs": JsonField, "until": forms.DateTimeField}
        widgets = {
            "until": forms.DateTimeInput({"class": "vTextField"}),
            "task": forms.TextInput({"class": "vTextField", "list": "schedulable-tasks"}),
            **{name: forms.Textarea({"rows": 3, "spellcheck": "false"}) for name in ("args", "kwargs")},
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "backend" in self.fields:
            self.fields["backend"].required = False
        if "timezone" in self.fields:  # its default is a function, so Django would compare with a hidden field
            self.fields["timezone"].show_hidden_initial = False

    #: Whether the user may schedule any task, not only those with ``schedulable=True``.
    any_task = False
    #: The database of its queue, where it is saved, and the job of a tick.
    home: str
    job: dict[str, Any] | None

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if self.errors:
            return given
        empty: dict[str, Any] = {"args": [], "kwargs": {}, "phase": 0, "jitter": 0}
        given |= {name: value for name, value in empty.items() if given.get(name) is None}
        name = given.pop("name", self.instance.name)
        enqueued = (given["task"], given["backend"], given["queue_name"])
        options = (*enqueued[1:], given["priority"], given["expires"])
        for field, checked in (
            ("schedule", lambda: parse(given["schedule"], given["timezone"], given["phase"])),
            (None, lambda: check(name, given)),
            ("task", self._check_task),
            ("task", lambda: task_of(given["task"], *options)),
            ("args", lambda: check_arguments(task_of(*enqueued), given["args"], given["kwargs"])),
        ):
            try:
                checked()
            except Exception as error:  # noqa: BLE001  (whatever a task's backend raises is to be read on the page)
                self.add_error(field, str(error))
                return given
        here = reading.alias()
        args, kwargs = codec.dumps(given["args"]), codec.dumps(given["kwargs"])
        self.job = template_of(given["task"], args, kwargs, *options)
        self.home = home_of(*enqueued, otherwise=here, job=self.job)
        adding = self.instance.pk is None or self.home != here
        if adding and RecurringTask.objects.using(self.home).filter(name=name, service=self.instance.service).exists():
            words = _("The database {database}, where its queue is, has a recurring task of that name.")
            self.add_error("name" if "name" in self.fields else None, words.format(database=self.home))
        return {**given, "name": name}

    def _post_clean(self) -> None:
        if not self.errors:  # else the model would say the same again
            super()._post_clean()  # type: ignore[misc]

    def _check_task(self) -> None:
        path = self.cleaned_data["task"]
        if not self.any_task and not getattr(find_task(path), "schedulable", False):
            words = _("Only superusers may schedule {task}: it has no @task(schedulable=True).")
            raise InvalidOption(words.format(task=path))


_SCHEDULE = '<span class="lq-mono">{}</span> <small>{}</small>'
_TIMES = (
    column(gettext_lazy("schedule"), lambda task: format_html(_SCHEDULE, task.schedule, task.timezone), "schedule"),
    column(
        gettext_lazy("last tick"),
        lambda task: moment(task.last_tick_at) if task.last_tick_at else _("never"),
        "last_tick_at",
    ),
    column(gettext_lazy("next tick"), _next_tick, "next_tick_at"),
)


@admin.register(RecurringTask)
class RecurringTaskAdmin(ListAdmin[RecurringTask]):
    """Recurring tasks of the settings are looked at, run and paused; those of the database are made and changed too."""

    form = RecurringForm
    change_form_template = "admin/leasequeue/recurring.html"
    list_display = ["name", "condition", "runs", *_TIMES[:2], "job", _TIMES[2]]
    last, following = map(staticmethod, _TIMES[1:])
    search_fields = ["name", "task"]
    actions = ["run", "pause", "resume"]
    every = 15
    readonly_fields = ("condition", "last", "job", "following")

    def get_urls(self) -> list[URLPattern]:
        times = self.view(self.times, "view_recurringtask")
        return [path("times/", times, name="leasequeue_recurringtask_times"), *super().get_urls()]

    def times(self, request: HttpRequest) -> HttpResponse:
        """The next times of a schedule, for the form, while it is typed."""
        return HttpResponse(next_times(*(request.GET.get(name, "") for name in PREVIEWED)))

    def get_fields(self, request: HttpRequest, obj: RecurringTask | None = None) -> Any:
        # Arguments may be secret: only those who may change them, or see payloads, see them.
        hidden = not (obj is None or self.has_change_permission(request, obj) or pages.allowed(request, "view_payload"))
        shown = [name for name in RecurringForm.Meta.fields if not (hidden and name in ("args", "kwargs"))]
        return [*shown, *(self.readonly_fields if obj is not None else ())]

    def get_readonly_fields(self, request: HttpRequest, obj: RecurringTask | None = None) -> Any:
        return self.readonly_fields if obj is None else ("name", *self.readonly_fields)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return pages.allowed(request, "view_recurringtask", "add_recurringtask")

    def has_change_permission(self, request: HttpRequest, obj: RecurringTask | None = None) -> bool:
        # A pause needs the permission to change alone; a changed task may run another, so that needs both.
        needed = ("view_recurringtask", "change_recurringtask", "add_recurringtask")
        return pages.allowed(request, *needed) and not (obj and obj.from_settings)

    def has_delete_permission(self, request: HttpRequest, obj: RecurringTask | None = None) -> bool:
        return pages.allowed(request, "view_recurringtask", "delete_recurringtask") and not (obj and obj.from_settings)

    def get_form(
        self, request: HttpRequest, obj: RecurringTask | None = None, change: bool = False, **kwargs: Any
    ) -> type[RecurringForm]:
        form = cast("type[RecurringForm]", super().get_form(request, obj, change, **kwargs))
        form.any_task = request.user.is_superuser
        return form

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        task = kwargs["obj"] or RecurringTask()
        shown = [request.POST.get(name, str(getattr(task, name) or "")) for name in PREVIEWED]
        context["times"] = next_times(*shown) if shown[0] else ""
        context["schedulable"] = sorted(schedulable_tasks())
        context["declared"] = task.from_settings
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: RecurringTask, form: RecurringForm, change: bool) -> None:
        obj.template, obj.last_error, obj.failed_at = form.job, "", None
        if "enabled" in form.changed_data:
            obj.paused = False
        with transaction.atomic(using=form.home):
            if change and form.home != reading.alias():
                RecurringTask.objects.using(reading.alias()).filter(pk=obj.pk).delete()
                obj.pk = obj.last_seq = obj.next_tick_at = None
            obj.save(using=form.home)
            action = "edit_recurring" if change else "add_recurring"
            # Arguments may be secret.
            self._record(request, action, obj, audit.changes(form, hidden=("args", "kwargs")), using=form.home)

    def response_add(
        self, request: HttpRequest, obj: RecurringTask, post_url_continue: str | None = None
    ) -> HttpResponse:
        return self._elsewhere(request, obj) or super().response_add(request, obj, post_url_continue)

    def response_change(self, request: HttpRequest, obj: RecurringTask) -> HttpResponse:
        return self._elsewhere(request, obj) or super().response_change(request, obj)

    def _elsewhere(self, request: HttpRequest, task: RecurringTask) -> HttpResponse | None:
        """Show the list of the database in which the task was saved, if it is not the one shown."""
        if (home := task._state.db) == reading.alias():
            return None
        words = _("{task} was saved in the database {database}, where its queue is.")
        messages.success(request, words.format(task=task.name, database=home))
        return self.redirect("leasequeue_recurringtask_changelist", **{reading.SWITCH: home})

    def delete_model(self, request: HttpRequest, obj: RecurringTask) -> None:
        gone = {name: [getattr(obj, name), None] for name in ("task", "schedule", "timezone", "enabled")}
        self._record(request, "delete_recurring", obj, gone)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[RecurringTask]) -> None:
        with transaction.atomic(using=queryset.db):
            for task in queryset:
                self.delete_model(request, task)

    def get_queryset(self, request: HttpRequest) -> QuerySet[RecurringTask]:
        last = Prefetch("last_job", Job.objects.only("seq", "state", "task"))
        return recurring(reading.alias()).prefetch_related(last)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return pages.allowed(request, "change_recurringtask")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        pages.require(request, "view_recurringtask")
        notes = [("error", text) for text in recurring_problems(reading.alias())]
        return super().changelist_view(request, {"notes": notes, **(extra_context or {})})

    @admin.display(description=gettext_lazy("state"), ordering="enabled")
    def condition(self, task: RecurringTask) -> SafeString | str:
        if not task.enabled:
            return pages.badge("paused")
        if task.ended_at:
            return format_html("{} <small>{}</small>", pages.badge("record", _("ended")), task.last_error)
        if task.last_error:
            return format_html("{} <small>{}</small>", pages.badge("failed", _("not enqueued")), task.last_error)
        if (task.late or 0) > BOUNDS.late:
            return pages.badge("failed", _("overdue"))
        found = task.last_job
        if found is not None and found.task == task.task and found.state in FAILED:
            return pages.badge("failed", _("last run failed"))
        return _("on time")

    @admin.display(description=gettext_lazy("task"), ordering="task")
    def runs(self, task: RecurringTask) -> SafeString | str:
        address = self.url_or_none("leasequeue_job_changelist", state="any", task=task.task)
        place = " ".join(filter(None, (task.queue_name, task.service)))
        return format_html("{} <small>{}</small>", link(task.task, address), place)

    @admin.display(description=gettext_lazy("its job"))
    def job(self, task: RecurringTask) -> SafeString | str:
        if task.last_tick_at is None:
            return ""
        if task.last_seq is None:
            return _("unknown")
        found = task.last_job
        if found is not None and found.task != task.task:
            return _("unknown")  # the backend writes to another database
        state = pages.badge("record", _("ended, not kept")) if found is None else pages.badge(found.state)
        return format_html("{} {}", self.job_link(task.last_seq), state)

    @admin.action(description=gettext_lazy("Run the selected tasks now"), permissions=["operate"])
    def run(self, request: HttpRequest, queryset: QuerySet[RecurringTask]) -> None:
        self._each(request, "run", queryset)

    @admin.action(description=gettext_lazy("Pause the selected tasks"), permissions=["operate"])
    def pause(self, request: HttpRequest, queryset: QuerySet[RecurringTask]) -> None:
        self._each(request, "pause", queryset)

    @admin.action(description=gettext_lazy("Let the selected tasks go on"), permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[RecurringTask]) -> None:
        self._each(request, "resume", queryset)

    def _record(
        self, request: HttpRequest, action: str, task: RecurringTask, changed: dict[str, Any], using: str | None = None
    ) -> None:
        detail = {"name": task.name, **({"changed": changed} if changed else {})}
        audit.record(request, action, obj=task, queue=task.queue_name, detail=detail, using=using or reading.alias())

    def _each(self, request: HttpRequest, action: str, tasks: QuerySet[RecurringTask]) -> None:
        for task in tasks:
            try:
                with transaction.atomic(using=reading.alias()):
                    before = task.enabled
                    text = _run(task) if action == "run" else _pause(task, paused=action == "pause")
                    changed = {} if before == task.enabled else {"enabled": [before, task.enabled]}
                    self._record(request, f"{action}_recurring", task, changed)
            except Exception as error:  # noqa: BLE001  (whatever a task's backend raises is to be read on the page)
                words = _("{task} was not enqueued: {error}")
                messages.error(request, words.format(task=task.name, error=f"{type(error).__name__}: {error}"))
            else:
                messages.success(request, text)


def _run(task: RecurringTask) -> str:
    args, kwargs, job = codec.dumps(task.args), codec.dumps(task.kwargs), task.template
    call = (task.task, args, kwargs, task.backend, task.queue_name, task.priority, task.expires)
    made = enqueue_due(reading.alias(), DueTask(*call, None if job is None else codec.dumps(job)))
    return _("{task} was enqueued as {job}; its next tick stays.").format(task=task.name, job=made)


def _pause(task: RecurringTask, *, paused: bool) -> str:
    """Pause a recurring task, or let it go on; while it is paused the settings that declare it do not enable it."""
    task.enabled, task.paused = not paused, paused
    task.save(update_fields=["enabled", "paused"])
    words = _("{task} is paused: no tick is enqueued.") if paused else _("{task} goes on with its next tick.")
    return words.format(task=task.name)

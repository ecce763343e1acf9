"""Recurring tasks: a schedule, a call, their service, and the outcome of the last tick."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pgtrigger
from django.conf import ENVIRONMENT_VARIABLE, settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils.timezone import is_aware

from .. import conf
from ..exceptions import InvalidOption
from .base import LocalTrigger, SameNumber
from .schedule import parse

#: Seconds by which a run is delayed at most.
MAX_JITTER = 86_400
#: A year in seconds, and the whole numbers that these fields take: seconds, but for ``times``.
_YEAR = 366 * 86_400
RANGES = {
    "grace": (0, _YEAR), "times": (1, 2**31 - 1), "phase": (0, _YEAR), "jitter": (0, MAX_JITTER), "expires": (1, _YEAR),
    "priority": (-32_767, 32_767),
}  # fmt: skip
#: Characters of the texts, and which may be empty.
_TEXTS = {"name": 128, "schedule": 128, "timezone": 64, "task": 1_000, "backend": 64, "queue_name": 255}
_MAY_BE_EMPTY = ("backend", "queue_name")


def default_timezone() -> str:
    """Return the default zone of cron lines: the project's ``TIME_ZONE``."""
    return settings.TIME_ZONE or "UTC"


def service_name() -> str:
    """Return the name of the service whose recurring tasks this project declares."""
    if conf.settings.SERVICE is not None:
        return conf.settings.SERVICE
    module = getattr(settings, "SETTINGS_MODULE", None) or os.environ.get(ENVIRONMENT_VARIABLE) or "default"
    return "/".join(filter(None, (conf.settings.WORKER.project, module.partition(".")[0])))


#: A changed schedule begins now, and a changed call is compiled again, also when SQL changes the row.
_FOLLOW = """
    IF (OLD.schedule, OLD.timezone, OLD.phase, OLD.until, OLD.times, OLD.enabled)
        IS DISTINCT FROM (NEW.schedule, NEW.timezone, NEW.phase, NEW.until, NEW.times, NEW.enabled) THEN
        NEW.next_tick_at := NULL;
        NEW.ended_at := NULL;
    END IF;
    IF (OLD.task, OLD.args, OLD.kwargs, OLD.backend, OLD.queue_name, OLD.priority, OLD.expires)
        IS DISTINCT FROM (NEW.task, NEW.args, NEW.kwargs, NEW.backend, NEW.queue_name, NEW.priority, NEW.expires)
        AND OLD.template IS NOT DISTINCT FROM NEW.template THEN
        NEW.template := NULL;
    END IF;
    RETURN NEW;
"""


class RecurringTask(models.Model):
    """A schedule and a call. One transaction enqueues a tick and sets ``last_tick_at``, so each tick runs once."""

    #: ``django_leasequeue.engine.codec``: models know nothing of the engine, so the app gives it to them.
    codec: ClassVar[Any] = None

    #: Its service; names are unique within one.
    service = models.CharField(max_length=128, default=service_name, editable=False)
    name = models.CharField(max_length=128)
    schedule = models.CharField(max_length=128)
    timezone = models.CharField(max_length=64, default=default_timezone)
    task = models.TextField()
    args = models.JSONField(default=list, blank=True)
    kwargs = models.JSONField(default=dict, blank=True)
    backend = models.CharField(max_length=64, default="default")
    queue_name = models.CharField(max_length=255, blank=True, default="")
    priority = models.SmallIntegerField(null=True, blank=True)
    #: Seconds after which a tick that was missed is skipped.
    grace = models.PositiveIntegerField(null=True, blank=True)
    #: No tick is later; and it ends after so many runs.
    until = models.DateTimeField(null=True, blank=True)
    times = models.PositiveIntegerField(null=True, blank=True)
    #: Seconds by which the ticks of an interval are shifted, and by which a run is delayed at most.
    phase = models.PositiveIntegerField(default=0, db_default=0, blank=True)
    jitter = models.PositiveIntegerField(default=0, db_default=0, blank=True)
    #: Seconds after which a run that has not started is removed; ``None``: as the task says.
    expires = models.PositiveIntegerField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    #: An operator has disabled it; the settings do not enable it.
    paused = models.BooleanField(default=False, editable=False)
    from_settings = models.BooleanField(default=False, editable=False)
    #: The compiled job of a tick; ``None``: the leader imports the task.
    template = models.JSONField(null=True, editable=False)
    last_tick_at = models.DateTimeField(null=True, blank=True)
    next_tick_at = models.DateTimeField(null=True, blank=True)
    #: Ticks that were enqueued; and when ``until`` or ``times`` ended the schedule.
    runs = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    ended_at = models.DateTimeField(null=True, editable=False)
    #: The job of the last tick; ``None`` where the task's backend is not ours.
    last_seq = models.BigIntegerField(null=True, editable=False)
    last_job = SameNumber("leasequeue.Job", here="last_seq")
    #: Why the last tick was not enqueued; empty if it was.
    last_error = models.TextField(default="", editable=False)
    failed_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    #: Seconds that it is overdue: of rows that ``reaper.concerns.recurring`` returns.
    late: float | None

    class Meta:
        constraints = [models.UniqueConstraint(fields=["service", "name"], name="leasequeue_recurring_name")]
        indexes = [
            models.Index(
                fields=["next_tick_at"],
                condition=Q(enabled=True, ended_at__isnull=True),
                name="leasequeue_recurring_next",
            ),
        ]
        triggers = [
            LocalTrigger(name="follow", when=pgtrigger.Before, operation=pgtrigger.Update, func=_FOLLOW),
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Refuse invalid values (``InvalidOption``), unless ``update_fields`` names other fields alone."""
        only = kwargs.get("update_fields")
        if only is None or not {*only}.isdisjoint({*_TEXTS, *RANGES, "args", "kwargs", "until", "enabled"}):
            self.check_values()
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """See ``check_values``."""
        try:
            self.check_values()
        except InvalidOption as error:
            # As the field's own: Django then does not look for a name that it cannot send to the database.
            wrong = str(error)
            raise ValidationError({"name": wrong} if wrong.startswith("name ") else wrong) from error

    def check_values(self) -> None:
        """Refuse values of a schedule or a call that no tick could use: ``InvalidOption``."""
        for name, longest in _TEXTS.items():
            value = getattr(self, name)
            empty = value == "" and name in _MAY_BE_EMPTY
            wrong = not isinstance(value, str) or not (value or empty) or len(value) > longest
            if wrong or self.codec.find_unwritable(value):
                raise InvalidOption(f"{name} must be a text of at most {longest} characters; it is {value!r}.")
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            wrong = isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high
            if wrong and not (value is None and name not in ("phase", "jitter")):
                what = "an integer" if name in ("times", "priority") else "whole seconds"
                raise InvalidOption(f"{name} must be {what} from {low:,} to {high:,}; it is {value!r}.")
        if not isinstance(self.args, list | tuple) or not isinstance(self.kwargs, dict):
            raise InvalidOption(f"args must be a list, and kwargs a dict; they are {self.args!r} and {self.kwargs!r}.")
        for name in ("args", "kwargs"):
            self.codec.dumps(getattr(self, name), name)
        if self.until is not None and not (hasattr(self.until, "utcoffset") and is_aware(self.until)):
            raise InvalidOption(f"until must be a datetime with a time zone; it is {self.until!r}.")
        if not isinstance(self.enabled, bool):
            raise InvalidOption(f"enabled must be true or false; it is {self.enabled!r}.")
        parse(self.schedule, self.timezone, self.phase)

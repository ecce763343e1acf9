"""Recurring tasks: a schedule, a call, their service, and the outcome of the last tick."""

from __future__ import annotations

import os

import pgtrigger
from django.conf import ENVIRONMENT_VARIABLE, settings
from django.db import models
from django.db.models import Q

from .. import conf
from .base import LocalTrigger, SameNumber


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

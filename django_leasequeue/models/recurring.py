"""Recurring tasks: a schedule, a call, their service, and the outcome of the last tick.

A schedule is a cron line in a time zone, or an interval.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pgtrigger
from django.conf import ENVIRONMENT_VARIABLE, settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils.timezone import is_aware

from .. import conf
from ..exceptions import InvalidOption
from .base import LocalTrigger, SameNumber

#: Longest text of a schedule, as the table has it.
MAX_LENGTH = 128

_EVERY = re.compile(r"every\s+(?:(\d{1,9})\s+)?(second|minute|hour|day)s?\Z", re.IGNORECASE)
_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_LONGEST = 366 * 86_400


class InvalidSchedule(InvalidOption):
    """A schedule is invalid, or never has a tick."""


class CronsimMissing(InvalidSchedule):
    """The schedule is a cron line, but cronsim is not installed."""


class Interval:
    """Ticks ``phase`` seconds after every multiple of its seconds since 1970-01-01 UTC: every process agrees."""

    def __init__(self, text: str, phase: int = 0) -> None:
        match = _EVERY.match(text)
        self._seconds = int(match[1] or 1) * _UNITS[match[2].lower()] if match else 0
        if not 1 <= self._seconds <= _LONGEST:
            raise InvalidSchedule(
                "schedule must be an interval like 'every 30 seconds' (minutes, hours, days), from a second to a year;"
                f" it is {text!r}."
            )
        if not 0 <= phase < self._seconds:
            raise InvalidSchedule(f"phase must be less than the {self._seconds} seconds of {text!r}; it is {phase}.")
        self._phase = phase

    def next(self, after: datetime) -> datetime:
        """Return the first tick after ``after`` (aware), in UTC."""
        number = int((after.timestamp() - self._phase) // self._seconds) + 1
        return datetime.fromtimestamp(number * self._seconds + self._phase, UTC)


class Cron:
    """Ticks of a cron line in a time zone, as Debian's cron has them.

    When clocks go forward, a skipped time of day runs right after the gap; when they go back, a repeated time of day
    runs once. Lines with a ``*`` in minutes or hours run by elapsed time.
    """

    def __init__(self, text: str, zone: ZoneInfo) -> None:
        try:
            import cronsim
        except ImportError as error:
            raise CronsimMissing(
                f'the schedule {text!r} is a cron line: install cronsim (pip install "django-leasequeue[cron]"), or use'
                " an interval like 'every 5 minutes'."
            ) from error
        self._line, self._zone, self._ticks = _MACROS.get(text.lower(), text), zone, cronsim.CronSim
        try:
            self.next(datetime(2025, 1, 1, tzinfo=UTC))
        except cronsim.CronSimError as error:
            raise InvalidSchedule(
                f"{text!r} is not a schedule ({error}). Write '*/5 * * * *', '@daily', or 'every 30 seconds'."
            ) from error

    def next(self, after: datetime) -> datetime:
        """See ``Interval.next``; ``InvalidSchedule``: there is none in fifty years."""
        for tick in self._ticks(self._line, after.astimezone(self._zone)):
            # Counted by the wall clock, a tick can come out before ``after`` in the hour that comes twice.
            moment: datetime = tick.astimezone(UTC)
            if moment > after:
                return moment
        raise InvalidSchedule(f"the schedule {self._line!r} has no tick in the next fifty years.")


Schedule = Interval | Cron


@lru_cache(maxsize=1_000)
def parse(text: str, timezone: str = "UTC", phase: int = 0) -> Schedule:
    """Return the schedule of a text: a cron line of five fields (or six, seconds first), or an interval."""
    if not isinstance(text, str) or not 0 < len(text) <= MAX_LENGTH:
        raise InvalidSchedule(f"schedule must be a text of at most {MAX_LENGTH} characters; it is {text!r}.")
    try:
        zone = ZoneInfo(timezone)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InvalidSchedule(f"timezone must be a name like 'UTC' or 'Europe/Berlin'; it is {timezone!r}.") from error
    text = text.strip()
    if text.lower().startswith("every"):
        return Interval(text, phase)
    if phase:
        raise InvalidSchedule(f"phase belongs to an interval like 'every 5 minutes'; {text!r} is a cron line.")
    return Cron(text, zone)


def is_tick(schedule: Schedule, moment: datetime) -> bool:
    """Return whether a schedule has a tick at that moment."""
    return schedule.next(moment - _SECOND) == moment


def newest(schedule: Schedule, due: datetime, now: datetime) -> datetime:
    """Return the newest tick up to ``now``, from an earlier one (``due``); it searches at most a day."""
    tick = due
    if now - due > _DAY and (first := schedule.next(now - _DAY)) <= now:
        tick = first
    while (following := schedule.next(tick)) <= now:
        tick = following
    return tick


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

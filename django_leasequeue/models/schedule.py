"""Schedules: cron lines in a time zone, and intervals."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from ..exceptions import InvalidOption

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

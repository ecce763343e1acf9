"""What tests of recurring tasks share: the duty of one reaper, and rows."""

from datetime import UTC, datetime
from typing import Any

from django_leasequeue.engine import clock
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import RecurringTask, StoredJob
from django_leasequeue.reaper import DutyRun
from django_leasequeue.reaper.recurring import RecurringDuty

REPORT = "tests.reaper.recurring.tasks.report"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Looker:
    """The duty of one reaper: looks once, with a memory of its own."""

    def __init__(self, alias: str = "default") -> None:
        self._alias, self._duty = alias, RecurringDuty()

    def look(self, **later: float) -> list[Any]:
        """Look, so much later by the held clock; return the arguments of the jobs that are there now."""
        if later:
            assert clock.installed is not None
            clock.installed.advance(**later)
        with connect(self._alias) as own:
            while self._duty(DutyRun(own, self._alias)):
                pass
        return jobs(self._alias)


def begun(alias: str = "default") -> Looker:
    """One that has looked: it has noted the ticks that are next."""
    looker = Looker(alias)
    looker.look()
    return looker


def jobs(alias: str = "default") -> list[Any]:
    return [(job.data or {}).get("args", [None])[0] for job in StoredJob.objects.using(alias).order_by("seq")]


def made(name: str = "report", schedule: str = "0 * * * *", **fields: Any) -> RecurringTask:
    """Make a recurring task as SQL may do it: unchecked."""
    values = {"name": name, "schedule": schedule, "task": REPORT, "args": [name], **fields}
    (task,) = RecurringTask.objects.bulk_create([RecurringTask(**values)])
    return task


def next_tick(name: str = "report") -> datetime | None:
    return RecurringTask.objects.get(name=name).next_tick_at

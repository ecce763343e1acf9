"""The reaper's duty: enqueue the recurring tasks whose time has come, each tick once."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ... import conf
from ...engine.outage import passes
from .declared import sync
from .schedule import InvalidSchedule, Schedule, is_tick, newest, parse

if TYPE_CHECKING:
    from ..duty import Turn


from typing import Any

from django.db import transaction
from django.utils.module_loading import import_string

from ...engine import DjangoExecutor, codec
from ...engine.rows import number_of
from ...exceptions import InvalidOption
from ...models import RecurringTask

logger = logging.getLogger("django_leasequeue.reaper.recurring")

#: Recurring tasks that are looked at.
MAX_TASKS = 10_000


class _Line(NamedTuple):
    """A recurring task as the duty knows it."""

    now: datetime
    id: int
    name: str
    schedule: str
    timezone: str
    next_tick_at: datetime | None


class RecurringDuty:
    """Enqueues every tick once, whatever the number of reapers and however long none ran.

    Ticks that were missed (no reaper ran) become one run, of the newest of them: a report that was due at three in the
    morning is made when the workers are back at nine, once. A task that is new, enabled again, or has a new schedule
    begins with its next tick.
    """

    def __init__(self) -> None:
        self._synced = False
        #: Lines that are planned rightly, and lines whose schedule was complained of.
        self._planned: set[tuple[int, str, str, datetime]] = set()
        self._complained: set[tuple[int, str, str]] = set()

    def __call__(self, turn: Turn) -> bool:
        """Do what is due; return whether there is more."""
        if turn.alias != conf.settings.DATABASE:
            return False  # queues may be spread over several databases; the clock is in one
        if not self._synced:
            done = turn.run(sync())
            for name, why in done.invalid.items():
                logger.error("Recurring task %s of the settings is not used: %s", name, why)
            self._synced = True
        lines = [_Line._make(row) for row in turn.fetch("recurring_list", {"size": MAX_TASKS})]
        self._planned &= {_key(line) for line in lines if line.next_tick_at is not None}
        for line in lines:
            if turn.over:
                return True
            self._look_at(turn, line)
        return False

    def _look_at(self, turn: Turn, line: _Line) -> None:
        if line.next_tick_at is not None and line.next_tick_at > line.now and _key(line) in self._planned:
            return
        try:
            schedule = parse(line.schedule, line.timezone)
            self._act(turn, line, schedule)
        except InvalidSchedule as error:
            complaint = (line.id, line.schedule, line.timezone)
            if complaint not in self._complained:
                self._complained.add(complaint)
                logger.error("Recurring task %s does not run: %s", line.name, error)

    def _act(self, turn: Turn, line: _Line, schedule: Schedule) -> None:
        due, now = line.next_tick_at, line.now
        if due is not None and due <= now and is_tick(schedule, due):
            tick = newest(schedule, due, now)
            self._run(turn, line, tick, schedule.next(now))
            return
        following = schedule.next(now)
        if following != due:
            turn.fetch("recurring_plan", {"id": line.id, "before": due, "next_tick_at": following})
        self._planned.add((line.id, line.schedule, line.timezone, following))

    def _run(self, turn: Turn, line: _Line, tick: datetime, following: datetime) -> None:
        try:
            if enqueue_tick(turn.alias, line.id, tick, following):
                logger.info("Recurring task %s: enqueued the tick of %s", line.name, tick.isoformat())
        except Exception as error:
            if passes(error):
                raise
            skip_tick(turn.alias, line.id, tick, following)
            logger.exception("Recurring task %s could not be enqueued; its tick of %s is left out", line.name, tick)


def _key(line: _Line) -> tuple[int, str, str, datetime]:
    assert line.next_tick_at is not None
    return (line.id, line.schedule, line.timezone, line.next_tick_at)


def find_task(path: str) -> Any:
    """Return the task at a dotted path."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidOption(f"there is no task at {path!r}: {error}") from error
    if not (hasattr(found, "module_path") and hasattr(found, "using") and hasattr(found, "enqueue")):
        raise InvalidOption(f"{path!r} is not a task: decorate the function with @task.")
    return found


class DueTask(NamedTuple):
    """What a recurring task enqueues."""

    task: str
    args_json: str
    kwargs_json: str
    backend: str
    queue_name: str
    priority: int | None


def _take(alias: str, task_id: int, tick: datetime, following: datetime) -> DueTask | None:
    """Move the task's last tick: only one of all who try gets its row."""
    params = {"id": task_id, "tick": tick, "next_tick_at": following}
    rows = DjangoExecutor(alias).fetch("recurring_take", params)
    return DueTask._make(rows[0]) if rows else None


def task_of(wanted: DueTask) -> Any:
    """Return the task that a recurring task enqueues, with its backend, queue and priority."""
    changes = {"backend": wanted.backend or None, "queue_name": wanted.queue_name or None, "priority": wanted.priority}
    return find_task(wanted.task).using(**{key: value for key, value in changes.items() if value is not None})


def enqueue_task(wanted: DueTask) -> Any:
    """Enqueue a recurring task once, through its backend; return the task's result."""
    return task_of(wanted).enqueue(*codec.loads(wanted.args_json), **codec.loads(wanted.kwargs_json))


def enqueue_tick(alias: str, task_id: int, tick: datetime, following: datetime) -> bool:
    """Enqueue a tick unless another reaper has; return whether it was enqueued here.

    The tick is taken if and only if the job is there: not when the task's backend raises. (A task of a backend that
    does not write to this database is enqueued in between, so at most once.) ``following``: when the next one is due.
    """
    with transaction.atomic(using=alias):
        taken = _take(alias, task_id, tick, following)
        if taken is None:
            return False
        seq = number_of(enqueue_task(taken).id)
        RecurringTask.objects.using(alias).filter(pk=task_id).update(last_seq=seq)
    return True


def skip_tick(alias: str, task_id: int, tick: datetime, following: datetime) -> None:
    """Take a tick without enqueuing it: trying again would fail again."""
    with transaction.atomic(using=alias):
        _take(alias, task_id, tick, following)

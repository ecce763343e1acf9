"""The reaper's duty: enqueue the recurring tasks whose time has come, each tick once."""

from __future__ import annotations

import logging
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from django.db import transaction

from ...engine import ConnectionExecutor, DjangoExecutor, codec
from ...engine.outage import Outage, passes
from ...engine.pool import connect
from ...engine.queues import routing
from ...engine.rows import number_of
from ...exceptions import InvalidOption
from ...models import RecurringTask
from .declared import home_of, sync, task_of
from .schedule import Schedule, is_tick, newest, parse

if TYPE_CHECKING:
    from ..duty import Turn

logger = logging.getLogger("django_leasequeue.reaper.recurring")

#: Recurring tasks that are looked at.
MAX_TASKS = 10_000
#: Seconds between two looks at the databases that all tasks belong to, and before an absent one is tried again.
HOMES = 30.0


class _Line(NamedTuple):
    """A recurring task as the duty knows it."""

    now: datetime
    id: int
    name: str
    schedule: str
    timezone: str
    next_tick_at: datetime | None
    task: str
    backend: str
    queue_name: str
    enabled: bool


#: Columns of a task that is carried over.
_CARRIED = (
    "name", "schedule", "timezone", "task", "args", "kwargs", "backend", "queue_name", "priority", "enabled",
    "from_settings", "created_at", "last_tick_at", "next_tick_at",
)  # fmt: skip


class RecurringDuty:
    """Enqueues every tick once, whatever the number of reapers and however long none ran.

    The reaper of each database that holds queues has those of its queues. One that belongs to another database (it was
    made here, or its queue has moved) is carried over to it, with its last and next tick.

    Ticks that were missed (no reaper ran) become one run, of the newest of them: a report that was due at three in the
    morning is made when the workers are back at nine, once. A task that is new, enabled again, or has a new schedule
    begins with its next tick.
    """

    def __init__(self) -> None:
        self._synced = False
        #: Lines that are planned rightly, and lines whose schedule was complained of.
        self._planned: set[tuple[int, str, str, datetime]] = set()
        self._complained: set[tuple[int, str]] = set()
        self._homes_at = 0.0
        #: Databases that are away, until when they are not tried again.
        self._absent: dict[str, float] = {}
        self._outage = Outage(
            logger,
            "Recurring tasks cannot be carried over to the database of their queue, and are not enqueued meanwhile",
            "Recurring tasks are carried over to the database of their queue again",
        )

    def __call__(self, turn: Turn) -> bool:
        """Do what is due; return whether there is more."""
        if turn.alias not in routing.aliases():
            return False
        if not self._synced:
            done = turn.run(sync(turn.alias))
            for name, why in done.invalid.items():
                logger.error("Recurring task %s of the settings is not used: %s", name, why)
            self._synced = True
        lines = [_Line._make(row) for row in turn.fetch("recurring_list", {"size": MAX_TASKS})]
        self._planned &= {_key(line) for line in lines if line.next_tick_at is not None}
        if len(routing.aliases()) > 1 and time.monotonic() >= self._homes_at:
            self._homes_at = time.monotonic() + HOMES
            self._planned.clear()
        else:
            lines = [line for line in lines if line.enabled]
        for line in lines:
            if turn.over:
                return True
            self._look_at(turn, line)
        return False

    def _look_at(self, turn: Turn, line: _Line) -> None:
        if line.next_tick_at is not None and line.next_tick_at > line.now and _key(line) in self._planned:
            return
        try:
            home = home_of(line.task, line.backend, line.queue_name, otherwise=turn.alias)
            if home == turn.alias and line.enabled:
                self._act(turn, line, parse(line.schedule, line.timezone))
            elif home != turn.alias:
                self._carry_over(turn, line, home)
        except InvalidOption as error:
            if (line.id, str(error)) not in self._complained:
                self._complained.add((line.id, str(error)))
                logger.error("Recurring task %s does not run: %s", line.name, error)

    def _carry_over(self, turn: Turn, line: _Line, home: str) -> None:
        if time.monotonic() < self._absent.get(home, 0.0):
            return
        try:
            # Committed there first: between the two commits both have the row, and the one here never has a tick.
            with connect(home, patience=5, timeout=2) as there, turn.connection.transaction():
                for row in turn.fetch("recurring_release", {"id": line.id}):
                    values = dict(zip(_CARRIED, row, strict=True))
                    if not ConnectionExecutor(there).fetch("recurring_adopt", values):
                        raise InvalidOption(
                            f"its queue is in the database {home!r}, which has another recurring task of that name."
                            " Rename or delete one of them."
                        )
        except psycopg.Error as error:
            if not passes(error) or turn.connection.closed:
                raise
            self._absent[home] = time.monotonic() + HOMES
            self._outage.begins(home, error)
        else:
            self._outage.ends(home)
            logger.info("Recurring task %s: carried over to the database %s", line.name, home)

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


def enqueue_task(wanted: DueTask) -> Any:
    """Enqueue a recurring task once, through its backend; return the task's result."""
    task = task_of(wanted.task, wanted.backend, wanted.queue_name, wanted.priority)
    return task.enqueue(*codec.loads(wanted.args_json), **codec.loads(wanted.kwargs_json))


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

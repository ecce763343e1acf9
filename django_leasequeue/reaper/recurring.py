"""Recurring tasks: those of the settings (``LEASEQUEUE["RECURRING"]``), and the duty that enqueues each tick once."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from django.conf import settings as django_settings
from django.db import ProgrammingError, connections, transaction
from django.utils.module_loading import import_string

from .. import conf
from ..engine import ConnectionExecutor, DjangoExecutor, arrays, codec
from ..engine.operation import Steps, operation
from ..engine.outage import Outage, passes
from ..engine.pool import connect
from ..engine.queues import routing
from ..engine.rows import number_of
from ..exceptions import InvalidOption
from ..models import RecurringTask
from .schedule import Schedule, is_tick, newest, parse

if TYPE_CHECKING:
    from .reaper import Turn

logger = logging.getLogger("django_leasequeue.reaper.recurring")

TABLE = "leasequeue_recurringtask"
#: What the settings may say of a task.
_KEYS = ("task", "schedule", "timezone", "args", "kwargs", "backend", "queue_name", "priority", "enabled")
MAX_TASKS = 10_000
#: Seconds between two looks at the databases that all tasks belong to, and before an absent one is tried again.
HOMES = 30.0
#: Columns of a task that is carried over.
_CARRIED = (
    "name", "schedule", "timezone", "task", "args", "kwargs", "backend", "queue_name", "priority", "enabled",
    "from_settings", "created_at", "last_tick_at", "next_tick_at",
)  # fmt: skip


class Declared(NamedTuple):
    """A recurring task as the settings declare it, checked and complete."""

    name: str
    schedule: str
    timezone: str
    task: str
    args: str
    kwargs: str
    backend: str
    queue_name: str
    priority: int | None
    enabled: bool


class Synced(NamedTuple):
    """What was carried over, by name."""

    made: list[str]
    changed: list[str]
    disabled: list[str]
    #: Made in the database, and left as they are.
    kept: list[str]
    #: Name -> what is wrong.
    invalid: dict[str, str]


def _text(what: str, value: Any, longest: int, *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or empty) or len(value) > longest or "\x00" in value:
        raise InvalidOption(f"{what} must be a text of at most {longest} characters; it is {value!r}.")
    return value


def check(name: str, given: dict[str, Any]) -> Declared:
    """Return one entry of ``LEASEQUEUE["RECURRING"]``, checked; raise ``InvalidOption`` where something is wrong."""
    _text("the name of a recurring task", name, 128)
    for key in given:
        if key not in _KEYS:
            raise InvalidOption(f"{key!r} is not one of {', '.join(_KEYS)}.")
    for key in ("task", "schedule"):
        if key not in given:
            raise InvalidOption(f"{key!r} is missing.")
    args, kwargs = given.get("args", ()), given.get("kwargs", {})
    if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping):
        raise InvalidOption("args must be a list, and kwargs a dict.")
    priority, enabled = given.get("priority"), given.get("enabled", True)
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > 32_767):
        raise InvalidOption(f"priority must be an integer; it is {priority!r}.")
    if not isinstance(enabled, bool):
        raise InvalidOption(f"enabled must be true or false; it is {enabled!r}.")
    schedule = given["schedule"]
    if isinstance(schedule, timedelta):
        seconds = schedule.total_seconds()
        if seconds != int(seconds):
            raise InvalidOption(f"schedule must be whole seconds; it is {schedule!r}.")
        schedule = f"every {int(seconds)} seconds"
    found = Declared(
        name,
        _text("schedule", schedule, 128),
        _text("timezone", given.get("timezone", django_settings.TIME_ZONE or "UTC"), 64),
        _text("task", given["task"], 1_000),
        codec.dumps(list(args), "args"),
        codec.dumps(dict(kwargs), "kwargs"),
        _text("backend", given.get("backend", ""), 64, empty=True),
        _text("queue_name", given.get("queue_name", ""), 255, empty=True),
        priority,
        enabled,
    )
    parse(found.schedule, found.timezone)
    return found


def find_task(path: str) -> Any:
    """Return the task at a dotted path."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidOption(f"there is no task at {path!r}: {error}") from error
    if not (hasattr(found, "module_path") and hasattr(found, "using") and hasattr(found, "enqueue")):
        raise InvalidOption(f"{path!r} is not a task: decorate the function with @task.")
    return found


def task_of(path: str, backend: str = "", queue_name: str = "", priority: int | None = None) -> Any:
    """Return the task that a recurring task enqueues, with its backend, queue and priority (empty: the task's own)."""
    changes = {"backend": backend or None, "queue_name": queue_name or None, "priority": priority}
    return find_task(path).using(**{key: value for key, value in changes.items() if value is not None})


def home_of(path: str, backend: str, queue_name: str, *, otherwise: str) -> str:
    """Return the alias of a recurring task's queue, so that a tick commits with its job; ``otherwise``: not found."""
    known = routing.aliases()
    if len(known) == 1:
        return known[0]
    try:
        task = task_of(path, backend, queue_name)
        database_of = getattr(task.get_backend(), "database_of", None)
        home = database_of(task) if database_of else ""
    except Exception:  # noqa: BLE001  (a host's modules raise what they like; the tick logs it)
        return otherwise
    return home if home in known else known[0]  # the backend may write to no database of queues


def on_migrate(using: str, **_: Any) -> None:
    """Receiver of ``post_migrate``. Where the tables are not, or are of another time, nothing is carried over."""
    if using not in routing.aliases() or TABLE not in connections[using].introspection.table_names():
        return
    try:
        with transaction.atomic(using=using):
            done = DjangoExecutor(using).run(sync(using))
    except ProgrammingError:
        logger.warning(
            "The recurring tasks are not carried over: the tables are not those of this version.", exc_info=True
        )
        return
    for name in done.kept:
        logger.warning("Recurring task %s was made in the database: what the settings declare is not used.", name)


@operation
def sync(using: str) -> Steps[Synced]:
    """Make the table in ``using`` say what the settings declare of its queues; what was made there is left alone."""
    everywhere: list[Declared] = []
    invalid: dict[str, str] = {}
    for name, given in conf.settings.RECURRING.items():
        try:
            everywhere.append(check(name, given))
        except InvalidOption as error:
            invalid[str(name)] = str(error)
    declared = [
        item
        for item in everywhere
        if home_of(item.task, item.backend, item.queue_name, otherwise=conf.settings.DATABASE) == using
    ]
    rows = yield "recurring_names", {}
    theirs = {name for name, from_settings in rows if not from_settings}
    kept = sorted(item.name for item in declared if item.name in theirs)
    made: list[str] = []
    changed: list[str] = []
    for item in declared:
        answer = yield "recurring_declare", item._asdict()
        for (new,) in answer:
            (made if new else changed).append(item.name)
    names = [item.name for item in everywhere] + list(invalid)
    gone = yield "recurring_undeclare", {"names": arrays.texts(names)}
    return Synced(made, changed, [name for (name,) in gone], kept, invalid)


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

    @property
    def plan(self) -> tuple[int, str, str, datetime | None]:
        """What the next tick was planned by."""
        return (self.id, self.schedule, self.timezone, self.next_tick_at)


class RecurringDuty:
    """Enqueues every tick once, whatever the number of reapers; those that were missed become one run, of the newest.

    The reaper of each database that holds queues has those of its queues. One that belongs to another database (it was
    made here, or its queue has moved) is carried over to it, with its last and next tick.
    """

    def __init__(self) -> None:
        self._synced = False
        #: Lines that are planned rightly, and lines whose schedule was complained of.
        self._planned: set[tuple[int, str, str, datetime | None]] = set()
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
        if turn.alias not in routing.aliases():
            return False
        if not self._synced:
            done = turn.run(sync(turn.alias))
            for name, why in done.invalid.items():
                logger.error("Recurring task %s of the settings is not used: %s", name, why)
            self._synced = True
        lines = [_Line._make(row) for row in turn.fetch("recurring_list", {"size": MAX_TASKS})]
        self._planned &= {line.plan for line in lines}
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
        if line.next_tick_at is not None and line.next_tick_at > line.now and line.plan in self._planned:
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
        if due is None or due > now or not is_tick(schedule, due):
            following = schedule.next(now)
            if following != due:
                turn.fetch("recurring_plan", {"id": line.id, "before": due, "next_tick_at": following})
            self._planned.add(line._replace(next_tick_at=following).plan)
            return
        tick, following = newest(schedule, due, now), schedule.next(now)
        try:
            if enqueue_tick(turn.alias, line.id, tick, following):
                logger.info("Recurring task %s: enqueued the tick of %s", line.name, tick.isoformat())
        except Exception as error:
            if passes(error):
                raise
            with transaction.atomic(using=turn.alias):  # trying again would fail again
                _take(turn.alias, line.id, tick, following)
            logger.exception("Recurring task %s could not be enqueued; its tick of %s is left out", line.name, tick)


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
    """Enqueue a tick unless another reaper has; return whether it was. It is taken if and only if the job is there.

    (A task of a backend that does not write to this database is enqueued in between, so at most once.)
    """
    with transaction.atomic(using=alias):
        taken = _take(alias, task_id, tick, following)
        if taken is None:
            return False
        seq = number_of(enqueue_task(taken).id)
        RecurringTask.objects.using(alias).filter(pk=task_id).update(last_seq=seq)
    return True

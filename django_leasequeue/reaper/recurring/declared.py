"""Recurring tasks of the settings (``LEASEQUEUE["RECURRING"]``), carried over to the table beside their queue."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from django.conf import settings as django_settings
from django.db import ProgrammingError, connections, transaction
from django.utils.module_loading import import_string

from ... import conf
from ...engine import DjangoExecutor, arrays, codec
from ...engine.operation import Steps, operation
from ...engine.queues import routing
from ...exceptions import InvalidOption
from .schedule import parse

logger = logging.getLogger("django_leasequeue.reaper.recurring")

TABLE = "leasequeue_recurringtask"
_KEYS = ("task", "schedule", "timezone", "args", "kwargs", "backend", "queue_name", "priority", "enabled")
MAX_NAME = 128


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
    """The outcome of carrying over.

    ``kept`` are names that were made in the database: those rows stay as they are. ``invalid`` tells what is wrong.
    """

    made: list[str]
    changed: list[str]
    disabled: list[str]
    kept: list[str]
    invalid: dict[str, str]


def _text(what: str, value: Any, longest: int, *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or empty) or len(value) > longest or "\x00" in value:
        raise InvalidOption(f"{what} must be a text of at most {longest} characters; it is {value!r}.")
    return value


def _schedule(value: Any) -> str:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        if seconds != int(seconds):
            raise InvalidOption(f"schedule must be whole seconds; it is {value!r}.")
        return f"every {int(seconds)} seconds"
    return _text("schedule", value, 128)


def check(name: str, given: dict[str, Any]) -> Declared:
    """Return one entry of ``LEASEQUEUE["RECURRING"]``, checked; raise ``InvalidOption`` where something is wrong."""
    _text("the name of a recurring task", name, MAX_NAME)
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
    found = Declared(
        name,
        _schedule(given["schedule"]),
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
    """Return the alias of the database for a recurring task: its queue's, so that a tick commits together with its job.

    ``otherwise``: the answer for a task that cannot be found. A task whose backend writes to no database of queues is
    kept in ``LEASEQUEUE["DATABASE"]``.
    """
    known = routing.aliases()
    if len(known) == 1:
        return known[0]
    try:
        task = task_of(path, backend, queue_name)
        database_of = getattr(task.get_backend(), "database_of", None)
        home = database_of(task) if database_of else ""
    except Exception:  # noqa: BLE001  (a host's modules raise what they like; the tick logs it)
        return otherwise
    return home if home in known else known[0]


def load() -> tuple[list[Declared], dict[str, str]]:
    """Return the declared tasks, and what is wrong with those that cannot be used, by name."""
    found, invalid = [], {}
    for name, given in conf.settings.RECURRING.items():
        try:
            found.append(check(name, given))
        except InvalidOption as error:
            invalid[str(name)] = str(error)
    return found, invalid


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
    """Make the table in ``using`` say what the settings declare of its queues; what they declare no longer is disabled.

    Rows that were made in the database are left alone. A new or changed schedule begins now; nothing is made up.
    """
    everywhere, invalid = load()
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

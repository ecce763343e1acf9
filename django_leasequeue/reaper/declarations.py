"""Recurring tasks of the settings (``LEASEQUEUE["RECURRING"]``): their check, and their sync by ``migrate``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import ProgrammingError, connections, transaction
from django.utils.module_loading import import_string

from .. import conf
from ..engine import DjangoExecutor, arrays, codec, task_modules
from ..engine.operation import Statements, operation
from ..engine.queues import routing
from ..engine.queues.declared import goes_back
from ..exceptions import InvalidOption
from ..models.recurring import RecurringTask, service_name

logger = logging.getLogger("django_leasequeue.reaper.recurring")

TABLE = "leasequeue_recurringtask"
#: Rows of one page of a scan.
PAGE = 1_000


class Declared(NamedTuple):
    """A recurring task of the settings, checked and with defaults."""

    name: str
    schedule: str
    timezone: str
    task: str
    args: str
    kwargs: str
    backend: str
    queue_name: str
    priority: int | None
    grace: int | None
    until: datetime | None
    times: int | None
    phase: int
    jitter: int
    expires: int | None
    enabled: bool


#: The keys of a task in the settings.
_KEYS = Declared._fields[1:]


class Synced(NamedTuple):
    """The outcome of a sync, by name."""

    made: list[str]
    changed: list[str]
    disabled: list[str]
    #: Made in the database, and left unchanged.
    kept: list[str]
    #: Declared before, and left unchanged: the settings have no ``RECURRING``.
    stay: list[str]
    #: Name -> error.
    invalid: dict[str, str]


def _plain(key: str, value: Any) -> Any:
    """Return the value of a key as the model has it: seconds in place of a timedelta."""
    if key in ("phase", "jitter") and value is None:
        return 0
    if not isinstance(value, timedelta) or key == "times":
        return value
    seconds = value.total_seconds()
    if seconds != int(seconds):
        raise InvalidOption(f"{key} must be whole seconds; it is {value!r}.")
    return f"every {int(seconds)} seconds" if key == "schedule" else int(seconds)


def check(name: str, given: dict[str, Any]) -> Declared:
    """Return one entry of ``LEASEQUEUE["RECURRING"]``, checked; ``InvalidOption``: it is invalid."""
    for key in given:
        if key not in _KEYS:
            raise InvalidOption(f"the keys are {', '.join(_KEYS)}; one is {key!r}.")
    for key in ("task", "schedule"):
        if key not in given:
            raise InvalidOption(f"{key!r} is missing.")
    task = RecurringTask(name=name, **{"backend": "", **{key: _plain(key, value) for key, value in given.items()}})
    task.check_values()
    found = {field: getattr(task, field) for field in Declared._fields}
    found["args"], found["kwargs"] = codec.dumps(list(task.args), "args"), codec.dumps(dict(task.kwargs), "kwargs")
    return Declared(**found)


def find_task(path: str) -> Any:
    """Return the task at a dotted path."""
    if not task_modules.importable(path.rpartition(".")[0]):
        raise InvalidOption(task_modules.refusal(path))
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidOption(f"task must be the path of a task; it is {path!r}: {error}") from error
    if not (hasattr(found, "module_path") and hasattr(found, "using") and hasattr(found, "enqueue")):
        raise InvalidOption(f"task must be the path of a task; {path!r} is none: decorate the function with @task.")
    return found


def task_of(
    path: str, backend: str = "", queue_name: str = "", priority: int | None = None, expires: int | None = None
) -> Any:
    """Return the task of a recurring task, with these options (empty: the task's own)."""
    changes = {"backend": backend or None, "queue_name": queue_name or None, "priority": priority, "expires": expires}
    return find_task(path).using(**{key: value for key, value in changes.items() if value is not None})


def template_of(task: str, args: str, kwargs: str, *options: Any) -> dict[str, Any] | None:
    """Return the job of a call (arguments as JSON) as a dict; ``None``: its backend uses no database of queues."""
    found = task_of(task, *options)
    make = getattr(found.get_backend(), "template_of", None)
    job: dict[str, Any] | None = None if make is None else make(found, codec.loads(args), codec.loads(kwargs))
    return job if job is not None and job["database"] in (None, "", *routing.aliases()) else None


def _compile(name: str, *call: Any) -> dict[str, Any] | None:
    try:
        return template_of(*call)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # The leader tries again at the tick, and notes an error then.
        logger.warning("Recurring task %s: its task cannot be imported here", name, exc_info=True)
        return None


def home_of(path: str, backend: str, queue_name: str, *, otherwise: str, job: Mapping[str, Any] | None = None) -> str:
    """Return the alias of a recurring task's queue, where a tick commits with its job; ``otherwise``: unknown."""
    known = routing.aliases()
    if len(known) == 1:
        return known[0]
    try:
        if job is not None:
            home = job["database"] or routing.alias_of(job["project"], job["queue"], adding=True)
        else:
            task = task_of(path, backend, queue_name)
            database_of = getattr(task.get_backend(), "database_of", None)
            home = database_of(task) if database_of else ""
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  (a host's module may raise anything; the tick notes it)
        return otherwise
    return home if home in known else known[0]  # the backend may use no database of queues


def on_migrate(
    using: str, *, verbosity: int = 1, stdout: Any = None, plan: Sequence[tuple[Any, bool]] = (), **_: Any
) -> None:
    """Receiver of ``post_migrate``: sync, unless the tables are missing or of another version."""
    if goes_back(plan) or using not in routing.aliases() or TABLE not in connections[using].introspection.table_names():
        return
    try:
        with transaction.atomic(using=using):
            done = DjangoExecutor(using).run(sync(using))
    except ProgrammingError:
        logger.warning("The recurring tasks are not synced: the tables are not those of this version. Run migrate.")
        return
    for name in done.kept:
        logger.warning("Recurring task %s was made in the database: its declaration in the settings is not used.", name)
    for name, why in done.invalid.items():
        logger.error("Recurring task %s of the settings is not used: %s", name, why)
    for line in _words(done) if verbosity else ():
        (stdout or sys.stdout).write(f"  {line}\n")


def _words(done: Synced) -> Iterator[str]:
    """Yield the lines of ``migrate``."""
    service = service_name()
    for what, names in (("new", done.made), ("changed", done.changed)):
        if names:
            yield f"Recurring tasks of the service {service!r}, {what}: {', '.join(sorted(names))}."
    if done.disabled:
        yield (
            f"Recurring tasks that the service {service!r} declares no longer are disabled: {', '.join(done.disabled)}."
            " Are they those of another service of that name? Give each LEASEQUEUE['SERVICE']."
        )
    if done.stay:
        yield (
            f"LEASEQUEUE['RECURRING'] is not set: the recurring tasks of the service {service!r} stay as they are:"
            f" {', '.join(done.stay)}. Set it to {{}} to disable them."
        )


@operation
def sync(using: str) -> Statements[Synced]:
    """Sync the table of ``using`` with this service's declarations for its queues; compile its other tasks again."""
    service, given = service_name(), conf.settings.RECURRING
    everywhere: list[Declared] = []
    invalid: dict[str, str] = {}
    for name, values in (given or {}).items():
        try:
            everywhere.append(check(name, values))
        except InvalidOption as error:
            invalid[str(name)] = str(error)
    rows = yield "recurring_names", {"service": service}
    theirs = {name for name, from_settings, _ in rows if not from_settings}
    kept, made, changed = list[str](), list[str](), list[str]()
    for item in everywhere:
        target = (item.backend, item.queue_name)
        job = _compile(item.name, item.task, item.args, item.kwargs, *target, item.priority, item.expires)
        if home_of(item.task, *target, otherwise=conf.settings.DATABASE, job=job) != using:
            continue
        if item.name in theirs:
            kept.append(item.name)
            continue
        values = {**item._asdict(), "service": service, "template": None if job is None else codec.dumps(job)}
        for (new,) in (yield "recurring_declare", values):
            (made if new else changed).append(item.name)
    yield from _compile_made(service)
    if given is None:
        stay = [name for name, from_settings, enabled in rows if from_settings and enabled]
        return Synced(made, changed, [], kept, stay, invalid)
    names = [item.name for item in everywhere] + list(invalid)
    gone = yield "recurring_undeclare", {"service": service, "names": arrays.texts(names)}
    return Synced(made, changed, sorted(name for (name,) in gone), sorted(kept), [], invalid)


def _compile_made(service: str) -> Statements[None]:
    """Compile the calls of tasks made in the database: the code may have changed."""
    after = 0
    while rows := (yield "recurring_made", {"service": service, "after": after, "size": PAGE}):
        for after, *call in rows:
            job = _compile(f"number {after}", *call)
            if job is not None:
                yield "recurring_compile", {"id": after, "template": codec.dumps(job)}

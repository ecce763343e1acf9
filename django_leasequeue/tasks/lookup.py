"""From the database back to Python: the task of a name, the ``TaskResult`` of a row.

A name is the only way from a job to code that runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from functools import cache
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, TypeVar

from django.utils import timezone

from .. import conf
from ..conf import process
from ..engine import HELD, Failure, codec, payloads, task_modules
from ..engine.dead.fingerprint import text_of
from ..engine.metadata import TAGS
from ..engine.operation import Statements, operation
from ..enums import JobState, ResultState
from ..words import ENDED
from . import api
from . import backoff as backoffs
from .api import BaseTaskBackend, Task, TaskError, TaskResult, TaskResultStatus, task_backends
from .exceptions import NotATask, TaskNotFound
from .options import BackendOptions
from .results import AttemptError, LeaseQueueTaskResult, local, show_decoded
from .task_class import OWN_FIELDS, LeaseQueueTask


def find_task(path: str | None) -> Task[..., Any]:
    """Return the task that a module declares under ``path``; import the module if it may be (``TASK_MODULES``)."""
    parts = (path or "").split(".")
    if not path or len(path) > 512 or len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise NotATask(
            f"{path!r} is not the path of a task, such as 'shop.tasks.send_receipt': something else than a task has"
            " enqueued the job."
        )
    module, names = _import(path)
    found: Any = module
    try:
        for name in names:
            found = getattr(found, name, None)
        if isinstance(found, Task):
            return found
    except BaseException as error:
        raise _not_found(f"The task {path!r} cannot be looked up", error) from error
    if found is None:
        raise TaskNotFound(
            f"There is no task {path!r}: {module.__name__} has no such name. Was it renamed or removed, or does this"
            " worker run older code than the process that enqueued it?"
        )
    raise TaskNotFound(
        f"{path!r} is not a task but {type(found).__name__}: only functions decorated with @task are run."
    )


def schedulable_tasks() -> Iterator[str]:
    """Yield the names of the schedulable tasks in modules that this process has imported."""
    for module in filter(None, list(task_modules.declared)):
        with suppress(ImportError):  # one that was imported under another name
            for found in list(vars(import_module(module)).values()):
                if isinstance(found, LeaseQueueTask) and found.schedulable:
                    yield found.module_path


def _import(path: str) -> tuple[Any, list[str]]:
    """Return the module that the longest possible part of the path names, and the names behind it."""
    parts = path.split(".")
    modules = [".".join(parts[:size]) for size in range(len(parts) - 1, 0, -1)]
    allowed = [name for name in modules if task_modules.importable(name)]
    if not allowed:
        raise TaskNotFound(task_modules.refusal(path))
    for name in allowed:
        try:
            return import_module(name), parts[name.count(".") + 1 :]
        except ModuleNotFoundError as error:
            # The module itself, or a package above it: try one level up. Anything else is missing inside of it.
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise TaskNotFound(f"The module of task {path!r} cannot be imported: {error}.") from error
        except BaseException as error:
            raise _not_found(f"The module of task {path!r} cannot be imported", error) from error
    raise TaskNotFound(
        f"There is no module for task {path!r}. Is the app installed here, and does this worker run the same code as"
        " the process that enqueued it?"
    )


def _not_found(what: str, error: BaseException) -> TaskNotFound:
    if not process.outlives(error, (Exception, SystemExit)):
        raise error
    return TaskNotFound(f"{what}: {type(error).__name__}({text_of(error)}).")


@cache
def check_findable(path: str) -> None:
    """Refuse the path of a task that no worker could find by its name; once found it stays so in this process."""
    if path.startswith("__main__."):
        raise TaskNotFound(
            f"The task {path!r} is declared in a script or shell: move it into a module, for workers to find."
        )
    find_task(path)


class TaskEntry(NamedTuple):
    """A task and the facts that each run needs, looked up once."""

    task: Task[..., Any]
    alias: str
    #: The class of the backend, which sends the signals: ``LeaseQueueBackend``, or one that a host derived from it.
    sender: type[BaseTaskBackend]
    path: str
    func: Any
    is_async: bool
    timeout: float | None
    timeout_grace: float | None
    isolate: bool
    atomic: bool
    ignore_result: bool
    #: Whether its jobs keep the slot of their limit while they sleep or wait.
    keeps_slot: bool
    #: How many of its calls run together; 0: it is no batch task.
    batch: int


def find_entry(path: str | None, alias: str = api.DEFAULT_TASK_BACKEND_ALIAS) -> TaskEntry:
    """Return the task under ``path`` if jobs of the backend ``alias`` may run it."""
    task = find_task(path)
    try:
        backend = task_backends[alias]
    except BaseException as error:
        raise _not_found(f"The job's backend {alias!r} cannot be used", error) from error
    if not isinstance(getattr(backend, "config", None), BackendOptions):
        raise TaskNotFound(
            f"The job's backend {alias!r} is not a LeaseQueueBackend: this worker does not run its tasks."
        )
    # Tasks of Django's own class have none of the options from ``timeout`` on.
    own = {name: getattr(task, name, False) for name in ("isolate", "atomic", "ignore_result")}
    return TaskEntry(
        task, alias, type(backend), task.module_path, task.func, iscoroutinefunction(task.func),
        getattr(task, "timeout", None), getattr(task, "timeout_grace", None), **own,
        keeps_slot=getattr(getattr(task, "limit", None), "while_suspended", False),
        batch=getattr(task, "batch", None) or 0,
    )  # fmt: skip


#: Paths of exception classes by the words that stand in their place among a job's errors.
_PATHS = {
    "LEASE_EXPIRED": "django_leasequeue.exceptions.LeaseLost",
    "MAX_ATTEMPTS": "django_leasequeue.exceptions.MaxRetries",
}
#: What stands among the errors of a task that failed without one: a worker that stopped gave its last attempt back.
_NO_ERROR = {"type": "MAX_ATTEMPTS", "message": "the last attempt ended, and no error of it is known"}
#: What a JSON column holds.
K = TypeVar("K", dict[str, Any], list[Any])

#: Statuses of jobs by the states of their rows; what has no entry is ready.
_STATUSES = {
    int(JobState.LEASED): TaskResultStatus.RUNNING,
    int(JobState.DEAD): TaskResultStatus.FAILED,
    ENDED + ResultState.COMPLETED: TaskResultStatus.SUCCESSFUL,
    ENDED + ResultState.FAILED: TaskResultStatus.FAILED,
    ENDED + ResultState.CANCELLED: TaskResultStatus.FAILED,
}

#: The columns of a row that may stand in a storage.
_DATA, _VALUE = payloads.Columns("data", None), payloads.Columns("value", None)


class ResultRow(NamedTuple):
    """A row of ``task_result.sql``. JSON columns are text, times are aware."""

    #: The job's state, or 10 and the state of its result.
    state: int
    #: The queue that it was enqueued to.
    queue: str
    priority: int
    name: str | None
    data: str | None
    errors: str | None
    value: str | None
    #: The node that holds it, or finished it.
    node: str | None
    deliveries: int
    #: The time at which it becomes ready, while it is delayed.
    available_at: datetime | None
    created_at: datetime
    first_claimed_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None
    is_dead: bool
    meta: str | None
    #: The job's own limit; ``None``: its queue's.
    max_deliveries: int | None


def make_result(
    declared: Task[..., Any],
    key: str,
    status: TaskResultStatus,
    *,
    meta: Mapping[str, Any],
    data: Mapping[str, Any] | None,
    backend: str,
    queue: str,
    priority: int,
    run_after: datetime | None = None,
    max_attempts: int | None,
    records: Sequence[Mapping[str, Any]],
    failure: Failure | None = None,
    node: str | None,
    attempts: int,
    value: Any = None,
    finished_at: datetime | None = None,
    **times: datetime | None,
) -> TaskResult[Any]:
    """Return a ``TaskResult``: ``data`` is the job's payload, ``node`` the worker of an attempt without a record."""
    changes: dict[str, Any] = {"priority": priority, "queue_name": queue, "backend": backend}
    changes["run_after"] = local(asked_start(meta, times.get("enqueued_at")) or run_after)
    errors: list[TaskError] = []
    for record in records if failure is None else [*records, asdict(failure)]:
        path, message = str(record.get("type") or ""), str(record.get("message") or "")
        shown = str(record.get("traceback") or message)
        errors.append(AttemptError(exception_class_path=_PATHS.get(path, path), traceback=shown, message=message))
    workers = [str(record.get("node") or "") for record in records]
    if node is not None:
        workers.append(node)
    result: TaskResult[Any] = LeaseQueueTaskResult(
        task=_as_enqueued(declared, meta, max_attempts, changes),
        id=key,
        status=status,
        finished_at=local(finished_at),
        **{name: local(at) for name, at in times.items()},
        args=data.get("args", []) if data else [],
        kwargs=data.get("kwargs", {}) if data else {},
        backend=backend,
        errors=errors,
        # The oldest may not be remembered any more.
        worker_ids=[""] * (attempts - len(workers)) + workers,
    )
    if conf.settings.TASK_CODECS:
        show_decoded(result)
    if value is not None:
        object.__setattr__(result, "_return_value", value)
    return result


def result_of_row(key: str, row: ResultRow, alias: str) -> TaskResult[Any]:
    """Return the result of a row of the database."""
    records: list[dict[str, Any]] = [record for record in _read(row.errors, list) if isinstance(record, dict)]
    status = TaskResultStatus.FAILED if row.is_dead else _STATUSES.get(row.state, TaskResultStatus.READY)
    if status is TaskResultStatus.FAILED and not records and row.state != ENDED + ResultState.CANCELLED:
        records = [_NO_ERROR]
    try:
        declared = find_task(row.name)
    except TaskNotFound as error:
        raise TaskNotFound(f"The result {key} is there, but its task is not: {error}") from error
    running = row.state == JobState.LEASED or status is TaskResultStatus.SUCCESSFUL
    return make_result(
        declared,
        key,
        status,
        meta=_read(row.meta, dict),
        data=_read(row.data, dict),
        backend=alias,
        queue=row.queue,
        priority=row.priority,
        # A delay after an attempt is a backoff, and one without end a limit's or a workflow's: no caller asked for it.
        run_after=None if row.deliveries or row.available_at is None or row.available_at >= HELD else row.available_at,
        max_attempts=row.max_deliveries,
        records=records,
        node=row.node if running else None,
        attempts=row.deliveries,
        enqueued_at=row.created_at,
        started_at=row.first_claimed_at,
        last_attempted_at=row.claimed_at,
        finished_at=row.finished_at,
        value=None if row.value is None else codec.loads(row.value),
    )


def _as_enqueued(
    declared: Task[..., Any], meta: Mapping[str, Any], max_attempts: int | None, changes: dict[str, Any]
) -> Task[..., Any]:
    """Return a task as it was when it was enqueued: as declared, with what ``using()`` had changed."""
    if isinstance(declared, LeaseQueueTask):
        own: dict[str, Any] = {}
        if max_attempts is not None and max_attempts != declared.max_attempts:
            own["max_attempts"] = max_attempts
        for name in ("timeout", "timeout_grace", "deadline"):
            if (seconds := number(meta, name)) is not None:
                own[name] = seconds
        if "backoff" in meta:
            with suppress(TypeError, ValueError):
                own["backoff"] = backoffs.load(meta["backoff"])
        if isinstance(meta.get("ignore_result"), bool):
            own["ignore_result"] = meta["ignore_result"]
        changed = tuple(name for name in (*OWN_FIELDS, "queue_name") if name in own or name in declared.changed)
        changes |= {**own, "changed": changed}
        if found := meta.get(TAGS):
            changes["tags"] = found
    # Unchecked: what was enqueued may not be allowed any more.
    task = object.__new__(type(declared))
    for item in fields(declared):
        object.__setattr__(task, item.name, changes.get(item.name, getattr(declared, item.name)))
    return task


def number(meta: Mapping[str, Any], name: str) -> float | None:
    """Return the seconds that a job's metadata name; ``None`` if there are none, or another program wrote others."""
    seconds = meta.get(name)
    return float(seconds) if isinstance(seconds, (int, float)) and 0 <= seconds < math.inf else None


def asked_start(meta: Mapping[str, Any], enqueued_at: datetime | None) -> datetime | None:
    """Return the time before which a job may not start; ``None`` if its call names none."""
    return _time(meta.get("run_after")) or _later(enqueued_at, meta.get("delay_ms"))


def _time(text: Any) -> datetime | None:
    """Return the aware time that an ISO 8601 text names; ``None`` if it names none."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return None if timezone.is_naive(found) else found


def _later(at: datetime | None, ms: Any) -> datetime | None:
    """Return the time so many milliseconds after ``at``; ``None`` if they are none."""
    with suppress(TypeError, OverflowError):
        return None if at is None else at + timedelta(milliseconds=ms)
    return None


def _read(text: str | None, kind: type[K]) -> K:
    value = None if text is None else codec.loads(text)
    return value if isinstance(value, kind) else kind()


@operation
def find_row(key: str, project: str) -> Statements[ResultRow | None]:
    """Read the row of a job by its key, or ``None``."""
    rows = yield "task_result", {"key": key, "project": project}
    if not rows:
        return None
    found = [ResultRow(*rows[0])]
    for columns in (_DATA, _VALUE):
        found = yield from payloads.steps(found, columns)
    return found[0]

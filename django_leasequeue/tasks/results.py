"""The result of a task: Django's ``TaskResult``, which can also be cancelled and waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import islice, repeat
from operator import itemgetter
from os import urandom
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings as django_settings
from django.utils import timezone

from .. import conf, engine
from ..conf import process
from ..engine import clock, rows
from ..engine.jobs.results import join_key
from ..engine.jobs.steps import result_event
from ..engine.limits import check_timeout
from ..engine.queues import routing
from ..exceptions import InvalidOption, JobCancelled, JobFailed, WaitTimeout
from ..notify.alarms import Alarm, AsyncAlarm
from ..notify.replies import answer, get_hub, work_in_place
from ..twins import Body, arun, either, run
from .api import (
    GenericTaskResult,
    T,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_backends,
)
from .arguments import decoded, encode, misfit

if TYPE_CHECKING:
    from ..models import Job
    from .backend import LeaseQueueBackend

#: Types of values that are JSON as they are, and of names.
_ATOMS, _NAMES = frozenset({str, int, float, bool, type(None)}), frozenset({str})
#: Digits that a UUID of RFC 9562 may have after its third hyphen: two fixed bits, two random ones.
_VARIANTS = "89ab"


def new_ends() -> Iterator[str]:
    """Yield ends of new ids, 62 random bits each; the engine puts the job's number in front (``engine.make_id``)."""
    count = 1
    while True:
        # One call of the system for many: it costs more than what is made of it.
        noise = urandom(8 * count)
        digits = noise.hex()
        for start in range(0, 16 * count, 16):
            yield f"{_VARIANTS[noise[start >> 1] & 3]}{digits[start + 1 : start + 4]}-{digits[start + 4 : start + 16]}"
        count = min(2 * count, 256)


#: Ends of ids that are drawn ahead. A forked child begins with none: its ids are not to be guessed from its parent's.
SPARE = 64
_spare: list[str] = []
process.in_forked_child(_spare.clear)


def new_end() -> str:
    """Return one end of a new id, see ``new_ends``."""
    try:
        return _spare.pop()
    except IndexError:
        # Other threads may take all that are spare: one is this call's own.
        own, *others = islice(new_ends(), SPARE)
        _spare.extend(others)
        return own


def number_of(id: str) -> int:
    """Return the number of the job that an id names; ``InvalidOption`` if it names none."""
    number = rows.number_of(id)
    if number is None:
        raise InvalidOption(f"the id of a job in a workflow is that of its task's result; it is {id!r:.80}.")
    return number


def local(value: datetime | None) -> datetime | None:
    """Return an aware time as Django gives it: in UTC, or naive in the host's zone without ``USE_TZ``."""
    if value is None:
        return None
    return value.astimezone(UTC) if django_settings.USE_TZ else timezone.make_naive(value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttemptError(TaskError):
    """Django's ``TaskError``, and the error's message, which no traceback gives back whole."""

    message: str


class LeaseQueueTaskResult(GenericTaskResult[T]):
    """Django's ``TaskResult``, which can also be cancelled and waited for."""

    __slots__ = ("_created",)

    @property
    def created(self) -> bool | None:
        """Whether the call made this task: ``False`` if its key was taken and this is the result that was there.

        ``None`` for a result that was looked up by its id, and for one that waits for the commit of other data.
        """
        return getattr(self, "_created", None)

    if TYPE_CHECKING:  # it raises where there is none

        @property
        def return_value(self) -> T: ...

    @property
    def job(self) -> Job | None:
        """The task's job as a model, or ``None`` if it is forgotten, or waits for the commit of other data."""
        from ..models import Job  # declaring tasks loads no model

        found = (Job.objects.using(database).filter(key=self.id).first() for database in self._databases())
        return next(filter(None, found), None)

    @property
    def progress(self) -> Any:
        """The task's last progress, read now; ``None`` if it reported none or is forgotten."""
        from ..models import Job

        found = (
            Job.objects.using(database).filter(key=self.id).values_list("progress", flat=True).first()
            for database in self._databases()
        )
        return next((report for report in found if report is not None), None)

    def cancel(self, *, running: bool = False) -> bool:
        """Take the task out if it is not running: it is waiting, delayed, or between two attempts.

        In the caller's transaction if there is one. A worker that claims it at the same time wins or loses, never both.

        Args:
            running: take it out also while it runs. ``current()`` in it is told at once (``lost``, the reason
                ``cancelled``), a coroutine is cancelled; what it returns is not kept, and it is not tried again.

        Returns:
            Whether it was taken out. ``refresh()`` raises ``TaskResultDoesNotExist`` from then on.
        """
        return run(self._cancelling(running))

    async def acancel(self, *, running: bool = False) -> bool:
        """See ``cancel``. It runs on an async connection of its own, not in a transaction of the caller."""
        return await arun(self._cancelling(running))

    def wait(self, timeout: float = 30.0) -> T:
        """Wait until the task has ended, refresh this result, and return what the task returned.

        Not inside ``transaction.atomic()`` of the jobs' database, where no worker sees the task; tests with
        ``django_leasequeue.testing`` run it there themselves. Once it waits, it goes on while the database is away.

        Args:
            timeout: seconds, at most a day.

        Raises:
            WaitTimeout: it has not ended in time; it goes on.
            JobFailed: it has failed; ``errors`` of this result tells of its attempts.
            JobCancelled: it was cancelled or removed, or its result has expired.
            InvalidOption: ``timeout`` is not allowed, or the task waits for a transaction of the caller.
        """
        return run(self._waiting(timeout, Alarm))

    async def await_result(self, timeout: float = 30.0) -> T:  # noqa: ASYNC109  (the same call as the thread's)
        """Async twin of ``wait``: without a thread or a connection that waits."""
        return await arun(self._waiting(timeout, AsyncAlarm))

    def _waiting(self, timeout: float, alarm: Callable[[], Alarm]) -> Body[T]:
        deadline = clock.monotonic() + check_timeout(timeout)
        backend = self._lease_backend()
        database = backend.database_of(self.task)
        if self.enqueued_at is None:
            raise InvalidOption(
                "the task is not enqueued before the transaction of the caller's data commits. Wait for it after that."
            )
        if found := (yield from self._look()):
            return found[0]
        work = yield from work_in_place(database)
        if work is not None:
            yield work
            if found := (yield from self._look()):
                return found[0]
        hub = get_hub(database)
        ticket = hub.open(alarm())
        try:
            yield ticket.ready(timeout)
            join = join_key(self.id, self.task.queue_name, hub.channel, project=backend.config.project)
            seq, ticket.notified = yield either(engine.run, engine.arun, join, database)
            if seq is not None:
                ticket.bind(seq)
            ticket.ended = True  # it may have ended before this waiter was registered: look once more
            return (yield from answer(ticket, deadline, self._look, WaitTimeout(self.id, timeout)))
        finally:
            ticket.close()

    def ended_event(self) -> str:
        """Return the name of the event that the task's end is: for a task that waits for it."""
        return result_event(number_of(self.id))

    def outcome(self) -> tuple[T] | None:
        """Refresh, and return what the task returned, in a tuple; ``None`` if it goes on; errors are as of ``wait``."""
        return run(self._look())

    def _lease_backend(self) -> LeaseQueueBackend:
        return cast("LeaseQueueBackend", task_backends[self.backend])

    def _databases(self) -> list[str]:
        """Return the databases in which the job may be: two where its queue has moved."""
        config = self._lease_backend().config
        return [config.database] if config.database else routing.homes(config.project, self.task.queue_name)

    def _cancelling(self, running: bool) -> Body[bool]:
        project = self._lease_backend().config.project
        for database in self._databases():
            cancel = engine.cancel(self.task.queue_name, keys=[self.id], project=project, running=running)
            if (yield either(engine.run, engine.arun, cancel, database)):
                return True
        return False

    def _look(self) -> Body[tuple[T] | None]:
        """Refresh, and return the return value in a tuple; ``None`` if the task goes on."""
        try:
            yield either(self.refresh, self.arefresh)
        except TaskResultDoesNotExist as error:
            raise JobCancelled(
                self.id, f"Task {self.id} is gone: it was cancelled or removed, or its result has expired."
            ) from error
        if not self.is_finished:
            return None
        if self.status is TaskResultStatus.SUCCESSFUL:
            return (self.return_value,)
        if not self.errors:
            raise JobCancelled(self.id)
        attempts = cast("list[AttemptError]", self.errors)
        errors = [{"type": a.exception_class_path, "message": a.message, "traceback": a.traceback} for a in attempts]
        raise JobFailed(self.id, errors[-1]["type"], errors[-1]["message"], self.attempts, errors)


#: Put a value into a field: setting it by name, as a frozen dataclass does, takes four times as long.
_put: dict[str, Any] = {
    field.name: getattr(LeaseQueueTaskResult, field.name).__set__ for field in fields(LeaseQueueTaskResult)
}
_put_task, _put_id, _put_status, _put_args, _put_kwargs, _put_backend, _put_errors, _put_workers = (
    _put.pop(name) for name in ("task", "id", "status", "args", "kwargs", "backend", "errors", "worker_ids")
)
#: Fields of which nothing is known before the job is stored.
_unknown = tuple(_put.values())
_READY = TaskResultStatus.READY
_put_time = _put["enqueued_at"]
_put_created: Any = LeaseQueueTaskResult._created.__set__  # type: ignore[attr-defined]  # a slot


def json_arguments(
    task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], more: int = 0
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call as JSON, if the task takes them with so ``more`` in front of them."""
    if refusal := misfit(task.func, task.takes_context, len(args) + more, tuple(kwargs)):
        raise TypeError(refusal)
    try:
        listed: Any = list(args)
        named: Any = dict(kwargs)
        if conf.settings.TASK_CODECS:
            listed, named = encode(args), encode(kwargs)
        # Most are plain values: nothing to normalise.
        if (
            _ATOMS.issuperset(map(type, listed))
            and _ATOMS.issuperset(map(type, named.values()))
            and _NAMES.issuperset(map(type, named))
        ):
            return listed, named
        return normalize_json(listed), normalize_json(named)
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"The arguments of {task.module_path} must be JSON: {error}. Give the ids of objects, and dates and"
            " decimals as text, or name their types in LEASEQUEUE['TASK_CODECS']."
        ) from error


def new_result(
    task: Task[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    backend: str,
    id: str = "",
    stored_at: datetime | None = None,
) -> TaskResult[Any]:
    """Return the result of a call with these arguments (``json_arguments``); ``stored_at``: its job is stored."""
    result: LeaseQueueTaskResult[Any] = object.__new__(LeaseQueueTaskResult)
    _put_task(result, task)
    _put_id(result, id)
    _put_status(result, _READY)
    _put_args(result, args)
    _put_kwargs(result, kwargs)
    _put_backend(result, backend)
    _put_errors(result, [])
    _put_workers(result, [])
    for put in _unknown:
        put(result, None)
    if stored_at is not None:
        _put_time(result, stored_at)
        _put_created(result, True)
    return cast("TaskResult[Any]", result)


def new_results(
    task: Task[..., Any],
    arguments: Sequence[tuple[list[Any], dict[str, Any]]],
    backend: str,
    ids: Sequence[str | None],
    at: datetime | None,
) -> list[TaskResult[Any]]:
    """Return the results of stored calls of one task: field by field, which takes half the time of one by one."""
    made: list[TaskResult[Any]] = list(map(object.__new__, repeat(LeaseQueueTaskResult, len(arguments))))

    def put(setter: Callable[[Any, Any], None], values: Iterable[Any]) -> None:
        deque(map(setter, made, values), maxlen=0)

    put(_put_id, ids)
    put(_put_args, map(itemgetter(0), arguments))
    put(_put_kwargs, map(itemgetter(1), arguments))
    for setter in (_put_errors, _put_workers):
        put(setter, iter(list, None))
    common = {_put_task: task, _put_status: _READY, _put_backend: backend, **dict.fromkeys(_unknown)}
    for setter, value in {**common, _put_time: at, _put_created: True}.items():
        put(setter, repeat(value))
    return made


def show_decoded(result: TaskResult[Any]) -> None:
    """Decode the arguments of a result; values that no codec can read stay JSON."""
    with suppress(InvalidOption):
        args, kwargs = decoded(result.args, result.kwargs)
        _put_args(result, args)
        _put_kwargs(result, kwargs)


def note_stored(result: TaskResult[Any], id: str | None, at: datetime | None) -> None:
    """Note on the result of a call that its job was stored."""
    if id is not None:
        _put_id(result, id)
    _put_time(result, at)
    _put_created(result, True)


def note_delay(result: TaskResult[Any]) -> None:
    """Show on the task of a stored call when its delay is over, by the time that the database gave it."""
    task = copy(cast("Any", result.task))
    object.__setattr__(task, "run_after", cast("datetime", result.enqueued_at) + task.run_delay)
    _put_task(result, task)

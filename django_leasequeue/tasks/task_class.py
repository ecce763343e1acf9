"""``LeaseQueueTask``: the class of the tasks that ``@task`` makes, and the options of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, Unpack, cast

from ..engine import clock, task_modules
from ..engine.flow.declared import Limit
from ..engine.limits import MAX_SPAN_MS, seconds_of
from ..engine.metadata import check_tags
from ..twins import Body, Twins, either, sync, twin
from . import backoff as backoffs
from .api import GenericTask, InvalidTask, P, T, Task
from .arguments import OnConflict, UniqueUntil, check_limit, checked_unique_for, invalid_task, misfit, with_key_changes
from .backoff import BackoffLike
from .batch import check_batch
from .results import LeaseQueueTaskResult, local
from .signature import Signature

if TYPE_CHECKING:
    from ..models import JobQuerySet
    from .backend import LeaseQueueBackend

#: One set of arguments: positional ones, or keyword ones.
Arguments = Sequence[Any] | Mapping[str, Any]

#: One call of a task: the task, its positional and its keyword arguments.
Call = tuple["Task[..., Any]", Sequence[Any], Mapping[str, Any]]

#: Paths of the tasks with ``on_success`` or ``on_failure`` that this process has declared.
called_back: set[str] = set()

#: Fields that a task of ours has beside Django's own fields.
OWN_FIELDS = ("max_attempts", "backoff", "timeout", "timeout_grace", "ignore_result")


class CallOptions(TypedDict, total=False):
    """The options that ``@task`` and ``using()`` have in common; ``None`` leaves one as it is."""

    priority: int | None
    queue_name: str | None
    backend: str | None
    max_attempts: int | None
    backoff: BackoffLike | None
    timeout: float | timedelta | None
    timeout_grace: float | timedelta | None
    deadline: float | timedelta | None
    key: str | Callable[..., str | None] | None
    unique_for: float | timedelta | None
    unique_until: UniqueUntil | None
    on_conflict: OnConflict | None
    limit: Limit | None
    expires: float | timedelta | None
    tags: dict[str, str | int] | None
    ignore_result: bool | None


@dataclass(frozen=True, kw_only=True)
class LeaseQueueTask(Twins, GenericTask[P, T], Generic[P, T]):
    """Django's ``Task`` with the options of ``django_leasequeue.tasks.task``, which says what they mean.

    Their names are those of Django's open proposals (django/new-features, issues 142 and 144).
    """

    max_attempts: int | None = None
    backoff: Any = None
    timeout: float | None = None
    timeout_grace: float | None = None
    deadline: float | None = None
    key: str | Callable[P, str | None] | None = None
    unique_for: float | None = None
    unique_until: UniqueUntil | None = None
    on_conflict: OnConflict | None = None
    limit: Limit | None = None
    atomic: bool = False
    isolate: bool = False
    expires: float | None = None
    autoretry_for: tuple[type[BaseException], ...] | None = None
    dont_retry_for: tuple[type[BaseException], ...] = ()
    ignore_result: bool = False
    schedulable: bool = False
    batch: int | None = None
    batch_wait: float = 0.0
    batch_by: str | None = None
    on_success: Callable[[LeaseQueueTaskResult[Any]], object] | None = None
    on_failure: Callable[[LeaseQueueTaskResult[Any]], object] | None = None
    tags: dict[str, Any] | None = field(default=None, hash=False)

    run_delay: timedelta | None = field(default=None, repr=False, compare=False)
    """``run_after`` as it was given, if that was no time: the database counts it from the enqueue, of a step of a
    workflow from its parents' end. ``run_after`` itself is then a forecast by this machine's clock."""

    changed: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Names of those that ``using()`` has set: they travel with the job, the others are read where the task runs.

    Of ``queue_name`` also whether ``@task`` names it: a step that does is not moved to the queue of what adds it.
    """

    def __post_init__(self) -> None:
        # First: it decides which arguments a call takes.
        object.__setattr__(self, "func", check_batch(self))
        for name, value in {**_checked(self), "unique_for": checked_unique_for(self)}.items():
            object.__setattr__(self, name, value)
        check_limit(self)
        if self.on_success or self.on_failure:
            called_back.add(f"{self.func.__module__}.{self.func.__qualname__}")
        if self.atomic and iscoroutinefunction(self.func):
            raise InvalidTask("atomic is for plain functions: a transaction of Django is sync.")
        if isinstance(self.run_after, timedelta):
            if abs(self.run_after) > timedelta(milliseconds=MAX_SPAN_MS):
                raise InvalidTask(f"run_after is too far away: at most 100 years; it is {self.run_after!r}.")
            object.__setattr__(self, "run_delay", self.run_after)
            object.__setattr__(self, "run_after", local(clock.now() + self.run_after))
        GenericTask.__post_init__(self)
        task_modules.declared.add(self.func.__module__)

    @property
    def jobs(self) -> JobQuerySet:
        """The jobs of this task that are not forgotten, as models."""
        from ..models import Job  # declaring tasks loads no model

        backend = cast("LeaseQueueBackend", self.get_backend())
        return Job.objects.using(backend.database_of(self)).for_task(self)

    def using(self, *, run_after: datetime | timedelta | float | None = None, **options: Unpack[CallOptions]) -> Self:
        """Return a copy of the task with other defaults; what is ``None`` stays as it is.

        Args:
            run_after: not before this time; seconds and a timedelta count from the enqueue, of a step of a workflow
                from the end of those before it.
            options: those of ``@task`` but for ``takes_context``, ``atomic``, ``isolate``, ``schedulable``, ``batch``,
                ``batch_wait``, ``batch_by``, ``autoretry_for``, ``dont_retry_for``, ``on_success`` and ``on_failure``.
                ``key`` is a text in which braces mean nothing, or a function; ``tags`` are added to those that the task
                has.

        Raises:
            InvalidTask: a value is not allowed; or ``backoff`` is a function, which only ``@task`` takes.
        """
        given = known_options(options, ["run_after", *CallOptions.__annotations__], "using()")
        limit, tags = given.get("limit"), given.pop("tags", None)
        keeps = getattr(self.limit, "while_suspended", False)
        if limit is not None and getattr(limit, "while_suspended", keeps) is not keeps:
            raise InvalidTask("while_suspended of a limit is said by the task itself: @task(limit=...).")
        changes = with_key_changes(given)
        with invalid_task():
            if isinstance(run_after, (int, float)) and not isinstance(run_after, bool):
                run_after = timedelta(seconds=seconds_of(run_after, "run_after"))
            if tags is not None:
                check_tags(tags)
                changes["tags"] = {**(self.tags or {}), **tags}
            if "backoff" in changes:
                backoffs.dump(backoffs.parse(changes["backoff"]))
        if run_after is not None:
            changes |= {"run_after": run_after, "run_delay": None}
        changed = tuple(name for name in (*OWN_FIELDS, "queue_name") if name in self.changed or name in changes)
        return replace(self, **changes, changed=changed)

    def s(self, *args: Any, **kwargs: Any) -> Signature[T]:
        """Return the signature of a call in a workflow: what comes before it gives its first argument.

        Args:
            args: positional arguments, JSON, without the first one if something comes before it.
            kwargs: keyword arguments, JSON.
        """
        return Signature(self, args, kwargs)

    def si(self, *args: P.args, **kwargs: P.kwargs) -> Signature[T]:
        """Return the signature of a call in a workflow that takes nothing from what comes before it.

        Args:
            args: positional arguments, JSON.
            kwargs: keyword arguments, JSON.
        """
        return Signature(self, args, kwargs, immutable=True)

    if TYPE_CHECKING:  # what our backend answers

        def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> LeaseQueueTaskResult[T]: ...

        async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> LeaseQueueTaskResult[T]: ...

        def get_result(self, result_id: str) -> LeaseQueueTaskResult[T]: ...

        async def aget_result(self, result_id: str) -> LeaseQueueTaskResult[T]: ...

    @sync
    def enqueue_many(self, argument_sets: Iterable[Arguments]) -> Body[list[LeaseQueueTaskResult[T]]]:
        """Enqueue the task once for each set of arguments: all or none, in the caller's transaction if there is one.

        Args:
            argument_sets: a sequence of positional arguments, or a mapping of keyword arguments, for each job:
                ``resize.enqueue_many((photo.id,) for photo in photos)``.

        Returns:
            One result per set, in order.

        Raises:
            TypeError: a set is neither, or a value in it is not JSON.
        """
        backend: Any = self.get_backend()
        calls = _calls(self, argument_sets)
        if hasattr(backend, "aenqueue_many"):
            results: list[LeaseQueueTaskResult[T]] = yield either(backend.enqueue_many, backend.aenqueue_many, calls)
            return results
        # Another backend (Django's own in a host's tests): the same, one by one.
        made: list[LeaseQueueTaskResult[T]] = []
        for call in calls:
            result = yield either(backend.enqueue, backend.aenqueue, *call)
            made.append(result)
        return made

    aenqueue_many = twin(enqueue_many)


def known_options(options: Mapping[str, Any], names: Sequence[str], where: str) -> dict[str, Any]:
    """Return the options that are given; ``TypeError`` for one that there is not."""
    if unknown := options.keys() - set(names):
        raise TypeError(f"{where} has no option {min(unknown)!r}; it has {', '.join(sorted(names))}.")
    return {name: value for name, value in options.items() if value is not None}


def _check_callback(name: str, call: Any) -> None:
    refusal: str | None = ""
    if call is not None and not callable(call):
        refusal = f"It is {call!r:.200}."
    elif iscoroutinefunction(call):
        refusal = "It is a coroutine function: enqueue a task that is one."
    elif call is not None:
        refusal = misfit(call, False, 1, ())
    if refusal:
        raise InvalidTask(f"{name} must be a plain function that takes the task's result alone. {refusal}")


def _checked(task: LeaseQueueTask[..., Any]) -> dict[str, Any]:
    attempts = task.max_attempts
    if attempts is not None and (
        isinstance(attempts, bool) or not isinstance(attempts, int) or not 1 <= attempts < 2**31
    ):
        raise InvalidTask(f"max_attempts must be a whole number from 1; it is {attempts!r}.")
    for name in ("ignore_result", "isolate", "schedulable"):
        if not isinstance(getattr(task, name), bool):
            raise InvalidTask(f"{name} must be true or false; it is {getattr(task, name)!r}.")
    for name in ("on_success", "on_failure"):
        _check_callback(name, getattr(task, name))
    found: dict[str, Any] = {}
    with invalid_task():
        if task.tags is not None:
            check_tags(task.tags)
            found["tags"] = dict(task.tags)
        for name in ("timeout", "timeout_grace", "deadline", "expires"):
            seconds = getattr(task, name)
            found[name] = None if seconds is None else float(seconds_of(seconds, name))
            if found[name] == 0 and name in ("deadline", "expires"):
                raise ValueError(f"{name} must be more than 0 seconds; leave it out for no limit.")
        found["batch_wait"] = float(seconds_of(task.batch_wait, "batch_wait"))
        found["backoff"] = None if task.backoff is None else backoffs.parse(task.backoff)
    for name in ("deadline", "expires"):
        if found[name] is not None and not 0.001 <= found[name] <= MAX_SPAN_MS / 1000:
            raise InvalidTask(f"{name} must be 0.001 to {MAX_SPAN_MS // 1000} seconds; it is {getattr(task, name)!r}.")
    for name in ("autoretry_for", "dont_retry_for"):
        classes = getattr(task, name)
        if classes is not None:
            classes = classes if isinstance(classes, Iterable) and not isinstance(classes, type) else (classes,)
            found[name] = tuple(classes)
            if not all(isinstance(each, type) and issubclass(each, BaseException) for each in found[name]):
                raise InvalidTask(f"{name} takes exception classes, such as (ConnectionError,); it is {classes!r}.")
    return found


def _calls(task: LeaseQueueTask[..., Any], argument_sets: Iterable[Arguments]) -> Iterator[Call]:
    for arguments in argument_sets:
        if isinstance(arguments, Mapping):
            yield task, (), arguments
        elif isinstance(arguments, Sequence) and not isinstance(arguments, (str, bytes)):
            yield task, arguments, {}
        else:
            raise TypeError(
                "each item of enqueue_many is the arguments of one job: a tuple such as (1,) or a dict such as"
                f' {{"number": 1}}; it is {arguments!r}.'
            )

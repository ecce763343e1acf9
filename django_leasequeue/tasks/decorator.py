"""A task is declared: the decorator ``@task``, its options, and the class of the tasks that it makes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, Protocol, Self, TypedDict, Unpack, cast, overload

from ..engine import clock
from ..engine.flow.declared import Limit
from ..engine.limits import MAX_SPAN_MS, seconds_of
from ..engine.metadata import check_tags
from ..twins import Steps, Twins, either, sync, twin
from . import api
from . import backoff as backoffs
from .api import GenericTask, InvalidTask, P, T, Task
from .arguments import OnConflict, UniqueUntil, check_limit, checked_unique_for, invalid_task, with_key_changes
from .backoff import BackoffLike
from .context import LeaseQueueContext
from .results import LeaseQueueTaskResult, local
from .signature import Signature

if TYPE_CHECKING:
    from ..models import JobQuerySet
    from .backend import LeaseQueueBackend

#: One set of arguments: positional ones, or keyword ones.
Arguments = Sequence[Any] | Mapping[str, Any]

#: One call of a task: the task, its positional and its keyword arguments.
Call = tuple["Task[..., Any]", Sequence[Any], Mapping[str, Any]]

#: Fields that a task of ours has beside Django's own fields.
OWN_FIELDS = ("max_attempts", "backoff", "timeout", "ignore_result")


class CallOptions(TypedDict, total=False):
    """The options that ``@task`` and ``using()`` have in common; ``None`` leaves one as it is."""

    priority: int | None
    queue_name: str | None
    backend: str | None
    max_attempts: int | None
    backoff: BackoffLike | None
    timeout: float | timedelta | None
    key: str | Callable[..., str | None] | None
    unique_for: float | timedelta | None
    unique_until: UniqueUntil | None
    on_conflict: OnConflict | None
    limit: Limit | None
    expires: float | timedelta | None
    tags: dict[str, str | int] | None
    ignore_result: bool | None


#: Classes of exceptions, one or several.
Exceptions = type[BaseException] | tuple[type[BaseException], ...]


class TaskOptions(CallOptions, total=False):
    """The options of ``@task`` beside ``takes_context``, which decides about the function's type."""

    atomic: bool
    isolate: bool
    autoretry_for: Exceptions | None
    dont_retry_for: Exceptions


@dataclass(frozen=True, kw_only=True)
class LeaseQueueTask(Twins, GenericTask[P, T], Generic[P, T]):
    """Django's ``Task`` with the options of ``django_leasequeue.tasks.task``, which says what they mean.

    Their names are those of Django's open proposals (django/new-features, issues 142 and 144).
    """

    max_attempts: int | None = None
    backoff: Any = None
    timeout: float | None = None
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
    tags: dict[str, Any] | None = field(default=None, hash=False)

    step_delay: timedelta | None = field(default=None, repr=False, compare=False)
    """``run_after`` as it was given, if that was no time: a step of a workflow counts it from its parents' end."""

    changed: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Names of those that ``using()`` has set: they travel with the job, the others are read where the task runs.

    Of ``queue_name`` also whether ``@task`` names it: a step that does is not moved to the queue of what adds it.
    """

    def __post_init__(self) -> None:
        for name, value in {**_checked(self), "unique_for": checked_unique_for(self)}.items():
            object.__setattr__(self, name, value)
        check_limit(self)
        if self.atomic and iscoroutinefunction(self.func):
            raise InvalidTask("atomic is for plain functions: a transaction of Django is sync.")
        if isinstance(self.run_after, timedelta):
            object.__setattr__(self, "step_delay", self.run_after)
            try:
                object.__setattr__(self, "run_after", local(clock.now() + self.run_after))
            except OverflowError as error:
                raise InvalidTask(f"run_after is too far away: {self.run_after!r}.") from error
        GenericTask.__post_init__(self)

    @property
    def jobs(self) -> JobQuerySet:
        """The jobs of this task that are not forgotten, as models."""
        from ..models import Job  # declaring tasks loads no model

        backend = cast("LeaseQueueBackend", self.get_backend())
        return Job.objects.using(backend.database_of(self)).for_task(self)

    def using(self, *, run_after: datetime | timedelta | float | None = None, **options: Unpack[CallOptions]) -> Self:
        """Return a copy of the task with other defaults; what is ``None`` stays as it is.

        Args:
            run_after: not before this time; seconds and a timedelta count from this call, of a step of a workflow from
                the end of those before it.
            options: those of ``@task`` but for ``takes_context``, ``atomic``, ``isolate``, ``autoretry_for`` and
                ``dont_retry_for``. ``key`` is a text in which braces mean nothing, or a function; ``tags`` are added to
                those that the task has.

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
            changes |= {"run_after": run_after, "step_delay": None}
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
    def enqueue_many(self, argument_sets: Iterable[Arguments]) -> Steps[Sequence[LeaseQueueTaskResult[T]]]:
        """Enqueue the task once for each set of arguments: all or none, in the caller's transaction if there is one.

        Args:
            argument_sets: a sequence of positional arguments, or a mapping of keyword arguments, for each job:
                ``resize.enqueue_many((photo.id,) for photo in photos)``.

        Returns:
            A sequence of one result per set, in order. Those of a long one may be made when the first is asked for.

        Raises:
            TypeError: a set is neither, or a value in it is not JSON.
        """
        backend: Any = self.get_backend()
        calls = _calls(self, argument_sets)
        if hasattr(backend, "aenqueue_many"):
            results: Sequence[LeaseQueueTaskResult[T]] = yield either(
                backend.enqueue_many, backend.aenqueue_many, calls
            )
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


def _checked(task: LeaseQueueTask[..., Any]) -> dict[str, Any]:
    attempts = task.max_attempts
    if attempts is not None and (
        isinstance(attempts, bool) or not isinstance(attempts, int) or not 1 <= attempts < 2**31
    ):
        raise InvalidTask(f"max_attempts must be a whole number from 1; it is {attempts!r}.")
    for name in ("ignore_result", "isolate"):
        if not isinstance(getattr(task, name), bool):
            raise InvalidTask(f"{name} must be true or false; it is {getattr(task, name)!r}.")
    found: dict[str, Any] = {}
    with invalid_task():
        if task.tags is not None:
            check_tags(task.tags)
            found["tags"] = dict(task.tags)
        for name in ("timeout", "expires"):
            seconds = getattr(task, name)
            found[name] = None if seconds is None else float(seconds_of(seconds, name))
            if found[name] == 0:
                raise ValueError(f"{name} must be more than 0 seconds; leave it out for no limit.")
        found["backoff"] = None if task.backoff is None else backoffs.parse(task.backoff)
    if found["expires"] is not None and not 0.001 <= found["expires"] <= MAX_SPAN_MS / 1000:
        raise InvalidTask(f"expires must be 0.001 to {MAX_SPAN_MS // 1000} seconds; it is {task.expires!r}.")
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


class _Makes(Protocol):
    """The decorator: the result of a coroutine function is what awaiting it gives."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> LeaseQueueTask[P, T]: ...

    @overload
    def __call__(self, function: Callable[P, T], /) -> LeaseQueueTask[P, T]: ...


class _MakesWithContext(Protocol):
    """The decorator of functions whose first argument is the context."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[LeaseQueueContext, P], Coroutine[Any, Any, T]], /
    ) -> LeaseQueueTask[P, T]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[LeaseQueueContext, P], T], /) -> LeaseQueueTask[P, T]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, T]], /) -> LeaseQueueTask[P, T]: ...


@overload
def task(function: Callable[P, T], /) -> LeaseQueueTask[P, T]: ...


@overload
def task(*, takes_context: Literal[False] = False, **options: Unpack[TaskOptions]) -> _Makes: ...


@overload
def task(*, takes_context: Literal[True], **options: Unpack[TaskOptions]) -> _MakesWithContext: ...


def task(
    function: Callable[..., Any] | None = None, /, *, takes_context: bool = False, **options: Unpack[TaskOptions]
) -> Any:
    """Make a task of a function; like Django's ``@task``, with more arguments on every Django version.

    Django's own decorator does the same where it passes arguments on to the backend's task class (Django 6.1 and the
    backport). A task made here also runs on other backends: they take no notice of what they do not know.

    Args:
        function: what the task does; left out when the decorator has arguments.
        priority: -100 to 100, higher first.
        queue_name: one of the backend's ``QUEUES``.
        backend: alias in ``TASKS``.
        takes_context: whether the function's first argument is ``context``.
        max_attempts: how often it is tried, from 1; ``None``: the queue's ``max_deliveries``.
        backoff: seconds before the next try; a list of seconds, one an attempt; the name of a kind; a ``Backoff``; or a
            function ``(exception, task_result) -> seconds``, or ``None`` for no more tries. ``None``: the queue's.
        timeout: seconds that one attempt may take.
        key: the key that a call takes, 1 to 512 bytes: a text in which ``{name}`` stands for the argument of that name,
            or a function of the arguments (its ``None``: this call has no key). While the key holds, another call
            returns the result that is there. Keys are those of the queue, not of the task.
        unique_for: seconds for which the key holds, from the enqueueing on.
        unique_until: ``"start"``: the key holds until the task starts; ``"end"`` (so if neither is given): until it
            has ended, well or not.
        on_conflict: what another call does to a task with its key that waits and was never started: ``"ignore"`` (so
            if it is not given) nothing, ``"replace"`` takes its place, ``"reschedule"`` gives it the time of this call.
        limit: how many of its calls may run at once or start in a time, see ``Limit``.
        atomic: an attempt runs in ``transaction.atomic()`` of the database of its job, and its end is part of that: its
            rows, the jobs that it enqueues, its result are there once, or nothing is. Plain functions only.
        isolate: each attempt runs in a process of its own, which its timeout, ``cancel(running=True)``, a lost lease
            and the end of the worker kill. It takes as long as Django's start, and the memory of a process.
        expires: seconds from the enqueueing on, after which a call that was not started is removed: its result does not
            exist any more, ``wait()`` raises ``JobCancelled``. A lease protects a call that was started.
        autoretry_for: exception classes: an attempt that raises another one is the last. Left out: all are tried again.
        dont_retry_for: exception classes: an attempt that raises one of them is the last. ``RetryLater`` is always
            followed by another attempt.
        tags: names and values to find its jobs by, at most 16; what a job enqueues while it runs inherits them.
        ignore_result: what it returns is not kept, and need not be JSON: its value is ``None``, for the next step, too.

    Raises:
        InvalidTask: a value is not allowed.
    """
    known = known_options(options, ["takes_context", *TaskOptions.__annotations__], "@task")
    given: dict[str, Any] = {
        "priority": api.DEFAULT_TASK_PRIORITY,
        "queue_name": api.DEFAULT_TASK_QUEUE_NAME,
        "backend": api.DEFAULT_TASK_BACKEND_ALIAS,
        "run_after": None,
        "takes_context": takes_context,
        # A step that names its queue does not inherit that of the task which adds it.
        "changed": ("queue_name",) if "queue_name" in known else (),
        **known,
    }

    def make(function: Callable[..., Any]) -> LeaseQueueTask[..., Any]:
        return LeaseQueueTask(func=function, **given)

    return make if function is None else make(function)

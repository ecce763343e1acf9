"""The decorator ``@task`` and its options."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Concatenate, Literal, Protocol, Unpack, overload

from . import api
from .api import P, T
from .batch import Batch
from .context import LeaseQueueContext
from .results import LeaseQueueTaskResult
from .task_class import CallOptions, LeaseQueueTask, known_options

#: Classes of exceptions, one or several.
Exceptions = type[BaseException] | tuple[type[BaseException], ...]


class TaskOptions(CallOptions, total=False):
    """The options of ``@task`` beside ``takes_context``, which decides about the function's type."""

    atomic: bool
    isolate: bool
    schedulable: bool
    autoretry_for: Exceptions | None
    dont_retry_for: Exceptions
    on_success: Callable[[LeaseQueueTaskResult[Any]], object] | None
    on_failure: Callable[[LeaseQueueTaskResult[Any]], object] | None


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


class _MakesOfBatches(Protocol):
    """The decorator of functions whose only argument is the batch; calls of the task take any arguments."""

    def __call__(self, function: Callable[[Batch], object], /) -> LeaseQueueTask[..., Any]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, T]], /) -> LeaseQueueTask[P, T]: ...


@overload
def task(function: Callable[P, T], /) -> LeaseQueueTask[P, T]: ...


@overload
def task(
    *,
    batch: int,
    batch_wait: float | timedelta = ...,
    batch_by: str | None = ...,
    **options: Unpack[TaskOptions],
) -> _MakesOfBatches: ...


@overload
def task(*, takes_context: Literal[False] = False, **options: Unpack[TaskOptions]) -> _Makes: ...


@overload
def task(*, takes_context: Literal[True], **options: Unpack[TaskOptions]) -> _MakesWithContext: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    takes_context: bool = False,
    batch: int | None = None,
    batch_wait: float | timedelta = 0.0,
    batch_by: str | None = None,
    **options: Unpack[TaskOptions],
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
        batch: how many calls one run of the function takes at most, 1 to 1,000: its only argument is a ``Batch`` of
            them. Each call is a job with its own retries, limit, key and result.
        batch_wait: seconds that the first call of a batch waits for others, at most 60; 0: only those wait that find
            no free thread.
        batch_by: the name of a keyword argument that each call has: only calls with the same value run together.
        max_attempts: how often it is tried, from 1; ``None``: the queue's ``max_deliveries``.
        backoff: seconds before the next try; a list of seconds, one an attempt; the name of a kind; a ``Backoff``; or a
            function ``(exception, task_result) -> seconds``, or ``None`` for no more tries. ``None``: the queue's.
        timeout: seconds that one attempt may take; 0: any time. ``None``: what the worker's options say.
        timeout_grace: seconds that an attempt may go on after its timeout before its process is replaced; 0: any time.
            ``None``: what the worker's options say.
        deadline: seconds, or a timedelta, for all attempts together, from the enqueueing or ``run_after`` on; of a step
            of a workflow, or with ``on_conflict="reschedule"``, from the first start on. Then a running attempt times
            out, no other starts, and the task fails for good with ``DeadlineExceeded``. It fails at once if its next
            attempt would start too late.
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
        schedulable: users of the admin who are no superusers may schedule it, see ``RecurringTask``.
        on_success: a plain function that the worker calls with the task's result when its success is stored. It runs at
            most once, like a receiver of a signal; its own error is logged and changes nothing.
        on_failure: the same once the task has failed for good, or is dead.

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
        "batch": batch,
        "batch_wait": batch_wait,
        "batch_by": batch_by,
        # A step that names its queue does not inherit that of the task which adds it.
        "changed": ("queue_name",) if "queue_name" in known else (),
        **known,
    }

    def make(function: Callable[..., Any]) -> LeaseQueueTask[..., Any]:
        return LeaseQueueTask(func=function, **given)

    return make if function is None else make(function)

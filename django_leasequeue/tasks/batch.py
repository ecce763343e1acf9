"""Batch tasks: what their function gets, and the form of it that takes one call."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from ..engine.limits import MAX_BATCH, seconds_of
from ..exceptions import InvalidOption
from .api import InvalidTask
from .arguments import invalid_task, misfit
from .context import running

if TYPE_CHECKING:
    from ..worker.control import JobControl
    from .task_class import LeaseQueueTask

#: Seconds that the first call of a batch may wait for others at most.
MAX_WAIT = 60.0
#: Paths of the batch tasks that this process has declared.
declared: set[str] = set()


@dataclass(slots=True, eq=False)
class BatchCall:
    """One call of a batch: its arguments, the id of its result, its attempt (from 1)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    id: str
    attempt: int
    _control: JobControl | None = field(default=None, repr=False)

    @property
    def lost(self) -> bool:
        """Whether it is to stop: it was cancelled, its lease is lost, or the whole batch is to stop."""
        return self._control is not None and self._control.lost


class Batch:
    """The calls that one run of a batch task takes, in the order in which they were claimed.

    A call that is not answered by the end of the run has the value ``None``, or the error that the run raised.
    """

    def __init__(self, calls: Sequence[BatchCall]) -> None:
        self._calls = calls
        self._answers: dict[int, tuple[Any, BaseException | None]] = {}
        self._over = False

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, index: int) -> BatchCall:
        return self._calls[index]

    def __iter__(self) -> Iterator[BatchCall]:
        return iter(self._calls)

    def ok(self, index: int, value: Any = None) -> None:
        """Answer a call: it is done. The last answer counts.

        Args:
            index: its number in the batch, from 0.
            value: its result, JSON.

        Raises:
            InvalidOption: there is no such call, or the run is over.
        """
        self._answer(index, value, None)

    def fail(self, index: int, error: BaseException) -> None:
        """Answer a call: its job fails, with its own retries. The last answer counts.

        Args:
            index: its number in the batch, from 0.
            error: an exception, ``RetryLater`` and ``FailForGood`` too.

        Raises:
            InvalidOption: there is no such call, the run is over, or ``error`` is no exception.
        """
        if not isinstance(error, BaseException):
            raise InvalidOption(f"error must be an exception, such as ValueError('no such customer'); it is {error!r}.")
        self._answer(index, None, error)

    def _answer(self, index: int, value: Any, error: BaseException | None) -> None:
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(self._calls):
            raise InvalidOption(f"index must be that of a call, 0 to {len(self._calls) - 1}; it is {index!r}.")
        if self._over:
            raise InvalidOption("a batch takes no answers after the end of its run: let the function wait for threads.")
        self._answers[index] = (value, error)


def call(function: Callable[[Batch], object], batch: Batch) -> BaseException | None:
    """Run the function of a batch task; return its error, which is that of calls without an answer."""
    try:
        _check_returned(function(batch))
    except BaseException as error:  # noqa: BLE001  (a task may raise anything)
        return error
    return None


async def acall(function: Callable[[Batch], Awaitable[object]], batch: Batch) -> BaseException | None:
    """See ``call``."""
    try:
        _check_returned(await function(batch))
    except BaseException as error:  # noqa: BLE001  (a task may raise anything)
        return error
    return None


def _check_returned(value: object) -> None:
    if value is not None:
        raise TypeError(f"a batch task answers with batch.ok(index, value) and returns None, not {value!r:.200}.")


def close(batch: Batch, error: BaseException | None) -> list[tuple[Any, BaseException | None]]:
    """End a batch; return value and error of each call: its answer, or the error of the run."""
    batch._over = True
    return [batch._answers.get(index, (None, error)) for index in range(len(batch))]


def check_batch(task: LeaseQueueTask[..., Any]) -> Callable[..., Any]:
    """Check the options of a task about batches (``InvalidTask``); return its function, which takes one call."""
    size, wait, by, function = task.batch, task.batch_wait, task.batch_by, task.func
    if size is None:
        if wait or by is not None:
            raise InvalidTask(f"{'batch_wait' if wait else 'batch_by'} is about a batch: give batch, such as 100, too.")
        return function
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_BATCH:
        raise InvalidTask(f"batch must be a whole number from 1 to {MAX_BATCH}; it is {size!r}.")
    with invalid_task():
        if seconds_of(wait, "batch_wait") > MAX_WAIT:
            raise ValueError(f"batch_wait must be at most {MAX_WAIT:g} seconds; it is {wait!r}.")
    if by is not None and not (isinstance(by, str) and by.isidentifier()):
        raise InvalidTask(f"batch_by must be the name of a keyword argument, such as 'tenant'; it is {by!r}.")
    for name in ("atomic", "isolate", "takes_context", "deadline"):
        if getattr(task, name):
            raise InvalidTask(f"{name} is for tasks that run one call at a time: leave it out, or batch.")
    if getattr(function, "takes_one_call", False):
        return function  # a copy of the task
    if refusal := misfit(function, False, 1, ()):
        raise InvalidTask(f"the function of a batch task takes the batch alone. {refusal}")
    declared.add(f"{function.__module__}.{function.__qualname__}")
    return _of_one_call(function, by)


def _of_one_call(function: Callable[..., Any], by: str | None) -> Callable[..., Any]:
    """Return the function of a batch task as one that takes the arguments of one call: a batch of one."""
    made: Any
    if inspect.iscoroutinefunction(function):

        async def made(*args: Any, **kwargs: Any) -> Any:
            with _alone(args, kwargs) as batch:
                error = await acall(function, batch)
            return _only(batch, error)

    else:

        def made(*args: Any, **kwargs: Any) -> Any:
            with _alone(args, kwargs) as batch:
                error = call(function, batch)
            return _only(batch, error)

    kind = inspect.Parameter
    named = [] if by is None else [kind(by, kind.KEYWORD_ONLY)]
    parameters = [kind("args", kind.VAR_POSITIONAL), *named, kind("kwargs", kind.VAR_KEYWORD)]
    made = wraps(function)(made)
    made.__signature__, made.takes_one_call = inspect.Signature(parameters), True
    return cast("Callable[..., Any]", made)


@contextmanager
def _alone(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Batch]:
    """Make a batch of one call, whose control is that of the run meanwhile."""
    control, job = running.get(), None
    lead: JobControl | None = None
    if control is not None:
        from ..worker.batches import BatchControl  # declaring tasks loads no worker

        job, lead = control.job, BatchControl([control])
    token = running.set(lead)
    try:
        id, attempt = ("", 1) if job is None else (job.key or "", job.deliveries)
        yield Batch([BatchCall(args, kwargs, id, attempt, control)])
    finally:
        running.reset(token)


def _only(batch: Batch, error: BaseException | None) -> Any:
    [(value, own)] = close(batch, error)
    if own is not None:
        raise own
    return value

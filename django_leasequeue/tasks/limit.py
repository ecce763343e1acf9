"""Limits of tasks: how many calls of a key may run at once, and how many may start in a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from ..engine import HELD, LimitValues, NewJob
from ..engine.flow.limits import MAX_KEY_BYTES, check_key
from ..engine.limits import check_text
from ..exceptions import InvalidOption
from . import templates
from .api import InvalidTask, Task
from .exceptions import seconds_of

if TYPE_CHECKING:
    from .task import LeaseQueueTask


class Limited(NamedTuple):
    """The limit of one call: its key, and what each key may do."""

    key: str
    values: LimitValues


class Limit:
    """A limit for the calls of a task, counted over all workers: ``Limit("customer:{customer_id}", concurrency=1)``.

    Each key has its own slots and its own rate. Tasks that name the same limit share it; give them the same values.

    Args:
        template: the key of a call; ``{name}`` stands for the argument of that name. With ``key``: the limit's name.
        concurrency: how many jobs of a key run at once, 1 to 10,000. With 1 they run in the order of their enqueueing.
        rate: how many jobs of a key start in ``per``, 1 to 1,000,000.
        per: seconds or a timedelta, a tenth of a second to a day.
        burst: how many more may start at once after a pause.
        fair: whether keys take turns, each with ``concurrency`` jobs: one with many jobs does not keep others waiting.
        key: a function of the call's arguments that returns the key; its ``None``: this call is not limited.
        name: the limit's name, at most 255 bytes; the template by default.

    Raises:
        InvalidOption: a value is not allowed.
    """

    __slots__ = ("key", "template", "values")

    def __init__(
        self,
        template: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: float | timedelta | None = None,
        burst: int = 0,
        fair: bool = False,
        key: Callable[..., str | None] | None = None,
        name: str | None = None,
    ) -> None:
        if key is not None and not callable(key):
            raise InvalidOption(f"key must be a function of the arguments; it is {key!r}.")
        self.template = check_text(template, "the template of a limit", MAX_KEY_BYTES)
        self.key = key
        name = template if name is None else name
        self.values = LimitValues(name, concurrency, rate, _milliseconds(per), burst, fair)

    def __repr__(self) -> str:
        given = {name: getattr(self.values, name) for name in ("concurrency", "rate", "per_ms", "burst", "fair")}
        said = "".join(f", {name}={value}" for name, value in given.items() if value)
        return f"Limit({self.template!r}{said})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limit) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def _all(self) -> tuple[Any, ...]:
        return self.template, self.key, self.values


def _milliseconds(per: float | timedelta | None) -> int | None:
    if per is None:
        return None
    try:
        return round(seconds_of(per, "per") * 1000)
    except ValueError as error:
        raise InvalidOption(f"{error}") from error


def check(task: LeaseQueueTask[..., Any]) -> None:
    """Refuse what is no limit, or one whose template names what is no argument of the task.

    Raises:
        InvalidTask: it is.
    """
    limit: Any = task.limit
    if limit is None:
        return
    if not isinstance(limit, Limit):
        raise InvalidTask(f"limit must be a Limit, such as Limit('customer:{{id}}', concurrency=1); it is {limit!r}.")
    if limit.key is None and not templates.check_template(
        task.func, task.takes_context, limit.template, "the template of a limit"
    ):
        _checked(templates.without_fields(limit.template))


def of_call(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Limited | None:
    """Return the limit that a call of a task is under, if it is.

    Args:
        task: the task.
        args: positional arguments, as JSON gives them back.
        kwargs: keyword arguments.

    Raises:
        InvalidTask: the key cannot be made of the arguments, or is not allowed.
    """
    limit: Limit | None = getattr(task, "limit", None)
    if limit is None:
        return None
    if limit.key is None:
        key: Any = templates.fill(task, limit.template, args, kwargs, "limit")
    else:
        key = limit.key(*args, **kwargs)
    return None if key is None else Limited(_checked(key), limit.values)


def held(job: NewJob, limit: Limited | None) -> NewJob:
    """Return the job as its limit wants it enqueued: it waits, at least until the time that it has."""
    return job if limit is None else job._replace(flow=True, run_at=job.run_at or HELD)


def _checked(key: Any) -> str:
    try:
        return check_key(key)
    except InvalidOption as error:
        raise InvalidTask(f"{error}") from error

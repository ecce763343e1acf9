"""Limits of tasks: whether one fits its task, and the key of one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine.flow.declared import Limit, Limited
from ..engine.flow.limits import check_key
from ..exceptions import InvalidOption
from . import templates
from .api import InvalidTask, Task

if TYPE_CHECKING:
    from .task import LeaseQueueTask


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


def _checked(key: Any) -> str:
    try:
        return check_key(key)
    except InvalidOption as error:
        raise InvalidTask(f"{error}") from error

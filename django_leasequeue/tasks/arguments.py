"""Arguments of a call, compared with what the task's function takes before a job is made of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .api import Task


class _Taken(NamedTuple):
    """The arguments of a function: its signature, and how many positional arguments alone satisfy it."""

    signature: inspect.Signature
    least: int
    most: float


def check(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call that the task's function could not take.

    Of a decorated function the decorator's own parameters count, as it may add or take away some.

    Args:
        task: the task; the context of one with ``takes_context`` is added by the worker.
        args: positional arguments.
        kwargs: keyword arguments.

    Raises:
        TypeError: an argument is missing, unknown or given twice.
    """
    taken = _taken(task.func)
    if taken is None:
        return
    context = 1 if task.takes_context else 0
    if not kwargs and taken.least <= len(args) + context <= taken.most:
        return
    try:
        taken.signature.bind(*[None] * context, *args, **kwargs)
    except TypeError as error:
        parameters = list(taken.signature.parameters.values())[context:]
        takes = taken.signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
        raise TypeError(f"{task.module_path} cannot be called so: {error}. It takes {takes}.") from None


@lru_cache(maxsize=1_024)
def _taken(function: Callable[..., Any]) -> _Taken | None:
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # a function of C that does not tell
        return None
    least, most = 0, 0.0
    for parameter in signature.parameters.values():
        required = parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            most = float("inf")
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            least, most = least + required, most + 1
        elif parameter.kind is parameter.KEYWORD_ONLY and required:
            return _Taken(signature, 1, 0)  # positional arguments alone are never enough
    return _Taken(signature, least, most)

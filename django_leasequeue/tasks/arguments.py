"""Arguments of a call, compared with what the task's function takes before a job is made of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from .api import Task


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
    context = 1 if task.takes_context else 0
    misfit = _misfit(task.func, len(args) + context, tuple(kwargs))
    if misfit is not None:
        signature = inspect.signature(task.func, follow_wrapped=False)
        parameters = list(signature.parameters.values())[context:]
        takes = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
        raise TypeError(f"{task.module_path} cannot be called so: {misfit}. It takes {takes}.")


@lru_cache(maxsize=4_096)
def _misfit(function: Callable[..., Any], positional: int, names: tuple[str, ...]) -> str | None:
    """Return why a function takes no such call, ``None`` if it does: the values of the arguments do not matter."""
    signature = _taken(function)
    try:
        if signature is not None:
            signature.bind(*[None] * positional, **dict.fromkeys(names))
    except TypeError as error:
        return str(error)
    return None


def parameters_of(function: Callable[..., Any], takes_context: bool) -> list[inspect.Parameter] | None:
    """Return the parameters of a task's function without its context; ``None`` if they are not known."""
    taken = _taken(function)
    return None if taken is None else list(taken.parameters.values())[int(takes_context) :]


def named(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names, those left out as the function's defaults have them.

    Args:
        task: the task.
        args: positional arguments.
        kwargs: keyword arguments.

    Raises:
        TypeError: the function does not take them.
    """
    taken = _taken(task.func)
    if taken is None:
        return dict(kwargs)
    bound = taken.bind(*[None] * task.takes_context, *args, **kwargs)
    bound.apply_defaults()
    found: dict[str, Any] = {}
    for parameter in list(taken.parameters.values())[int(task.takes_context) :]:
        value = bound.arguments[parameter.name]
        found |= value if parameter.kind is parameter.VAR_KEYWORD else {parameter.name: value}
    return found


@lru_cache(maxsize=1_024)
def _taken(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # a function of C that does not tell
        return None

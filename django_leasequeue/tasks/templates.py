"""Templates of keys: texts in which ``{name}`` stands for an argument of the task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..engine.flow.declared import fields_of, filled
from ..exceptions import InvalidOption
from . import arguments
from .api import InvalidTask, Task


@lru_cache(maxsize=1_024)
def check_template(function: Callable[..., Any], takes_context: bool, template: str, what: str) -> bool:
    """Refuse a template that names what is no argument of the function.

    Args:
        function: the task's.
        takes_context: whether its first parameter is the context.
        template: the text.
        what: its name in messages.

    Returns:
        Whether it names an argument at all.

    Raises:
        InvalidTask: it names another one, or its braces do not fit.
    """
    try:
        fields = fields_of(template, what)
    except InvalidOption as error:
        raise InvalidTask(f"{error}") from error
    parameters = arguments.parameters_of(function, takes_context)
    if parameters is None or any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return bool(fields)
    known = [each.name for each in parameters if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    for field in fields:
        name = field.partition(".")[0].partition("[")[0]
        if name not in known:
            raise InvalidTask(
                f"{what} {template!r} names {name!r}, which is no argument; there are {', '.join(known)}."
            )
    return bool(fields)


def without_fields(template: str) -> str:
    """Return what a template gives that names no argument."""
    return template.replace("{{", "{").replace("}}", "}")


def fill(task: Task[..., Any], template: str, args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> str:
    """Return a template with the arguments of a call.

    Args:
        task: the task.
        template: checked.
        args: positional arguments.
        kwargs: keyword arguments.
        what: its name in messages.

    Raises:
        InvalidTask: it cannot be made of them.
    """
    try:
        refusal = f"the {what} of {task.module_path} cannot be made of these arguments"
        return filled(template, arguments.named(task, args, kwargs), refusal)
    except (InvalidOption, TypeError) as error:
        raise InvalidTask(f"{error}") from error

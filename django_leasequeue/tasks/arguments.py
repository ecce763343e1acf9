"""Arguments of a call: whether the function takes them, keys (unique, of a limit) made of them, and their codecs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn
from uuid import UUID

from .. import conf
from ..engine.flow.declared import Limit, Limited, fields_of, filled
from ..engine.flow.declared import check_key as check_limit_key
from ..engine.limits import MAX_SPAN_MS, MAX_UNIQUE_BYTES, check_text, seconds_of
from ..exceptions import InvalidOption
from .api import InvalidTask, Task

if TYPE_CHECKING:
    from .task_class import LeaseQueueTask

#: How long a key holds that has no time: until its task starts, or until it has ended.
UniqueUntil = Literal["start", "end"]
#: What becomes of a task that waits when its key is asked for again.
OnConflict = Literal["ignore", "replace", "reschedule"]

#: Options of a task that are about its key.
_ABOUT_KEY = ("unique_for", "unique_until", "on_conflict")


@contextmanager
def invalid_task() -> Iterator[None]:
    """Raise ``InvalidTask`` for a value that the engine does not allow."""
    try:
        yield
    except ValueError as error:
        raise InvalidTask(f"{error}") from error


class Key(str):
    """A key as ``using()`` takes it: a text in which braces mean nothing."""

    __slots__ = ()


# The function's parameters


def check_arguments(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for arguments that the task's function could not take; see ``misfit``."""
    if refusal := misfit(task.func, task.takes_context, len(args), tuple(kwargs)):
        raise TypeError(refusal)


@lru_cache(maxsize=4_096)
def misfit(function: Callable[..., Any], takes_context: bool, positional: int, names: tuple[str, ...]) -> str:
    """Return why a task's function takes no such call (an argument missing, unknown or given twice), "" if it does."""
    signature = _signature(function)
    if signature is None:
        return ""
    try:  # the worker adds the context
        signature.bind(*[None] * (positional + takes_context), **dict.fromkeys(names))
    except TypeError as error:
        parameters = list(signature.parameters.values())[int(takes_context) :]
        takes = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
        return f"{function.__module__}.{function.__qualname__} cannot be called so: {error}. It takes {takes}."
    return ""


@lru_cache(maxsize=1_024)
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:  # a decorator's own parameters count: it may add or take away some
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # a function of C that has none
        return None


# Templates: texts in which ``{name}`` stands for an argument of the task


@lru_cache(maxsize=1_024)
def _check_template(
    function: Callable[..., Any], takes_context: bool, template: str, what: str, check: Callable[[str], str]
) -> None:
    """Raise ``InvalidTask`` for a field that is no argument, and for a template without fields that is no key."""
    with invalid_task():
        fields = fields_of(template, what)
        if not fields:
            check(template.replace("{{", "{").replace("}}", "}"))
    signature = _signature(function)
    parameters = [] if signature is None else list(signature.parameters.values())[int(takes_context) :]
    if signature is None or any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    for field in fields:
        name = field.partition(".")[0].partition("[")[0]
        if name not in known:
            raise InvalidTask(
                f"{what} {template!r} names {name!r}, which is no argument; there are {', '.join(known)}."
            )


def _fill(task: Task[..., Any], template: str, args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> str:
    """Return a checked template with the arguments of a call, those left out as the function's defaults have them."""
    try:
        named = dict(kwargs)
        if (signature := _signature(task.func)) is not None:
            bound = signature.bind(*[None] * task.takes_context, *args, **kwargs)
            bound.apply_defaults()
            named = {}
            for parameter in list(signature.parameters.values())[int(task.takes_context) :]:
                value = bound.arguments[parameter.name]
                named |= value if parameter.kind is parameter.VAR_KEYWORD else {parameter.name: value}
        return filled(template, named, f"the {what} of {task.module_path} cannot be made of these arguments")
    except (InvalidOption, TypeError) as error:
        raise InvalidTask(f"{error}") from error


# Unique tasks


def _unique_key(key: Any) -> str:
    with invalid_task():
        return check_text(key, "the key of a task", MAX_UNIQUE_BYTES)


def checked_unique_for(task: LeaseQueueTask[..., Any]) -> float | None:
    """Check the options of a task about its key (``InvalidTask``); return its ``unique_for`` in seconds."""
    key: Any = task.key
    if isinstance(key, Key):
        _unique_key(key)
    elif isinstance(key, str):
        _check_template(task.func, task.takes_context, key, "key", _unique_key)
    elif key is not None and not callable(key):
        raise InvalidTask(
            "key must be a text, in which {name} stands for an argument of that name, or a function of the arguments;"
            f" it is {key!r}."
        )
    if task.unique_until not in (None, "start", "end"):
        raise InvalidTask(f"unique_until must be 'start' or 'end'; it is {task.unique_until!r}.")
    if task.on_conflict not in (None, "ignore", "replace", "reschedule"):
        raise InvalidTask(f"on_conflict must be 'ignore', 'replace' or 'reschedule'; it is {task.on_conflict!r}.")
    span: Any = task.unique_for
    if span is None:
        return None
    if task.unique_until is not None:
        raise InvalidTask("a key holds for unique_for seconds or until unique_until: give one of them.")
    with invalid_task():
        seconds = float(seconds_of(span, "unique_for"))
    if not 0.001 <= seconds <= MAX_SPAN_MS / 1000:
        raise InvalidTask(f"unique_for must be seconds, more than 0 and at most a hundred years; it is {span!r}.")
    return seconds


def with_key_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of ``using()``; of ``unique_for`` and ``unique_until`` the one given replaces the other."""
    more = dict(changes)
    if isinstance(changes.get("key"), str):
        more["key"] = Key(changes["key"])
    if "unique_for" in changes and "unique_until" not in changes:
        more["unique_until"] = None
    elif "unique_until" in changes and "unique_for" not in changes:
        more["unique_for"] = None
    return more


def is_about_key(task: LeaseQueueTask[..., Any]) -> bool:
    """Return whether a task has a key, or says how long one holds; see ``unique_fields``."""
    return any(getattr(task, name) is not None for name in ("key", *_ABOUT_KEY))


def unique_fields(task: LeaseQueueTask[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that make a new job unique, empty without a key; arguments are parsed JSON."""
    made: Any = task.key
    if made is None:
        named = [name for name in _ABOUT_KEY if getattr(task, name) is not None]
        if named:
            raise InvalidTask(f"{named[0]} is about a key: give the task one, as in using(key='invoice-7').")
        return {}
    args, kwargs = decoded(args, kwargs)
    if callable(made):
        made = made(*args, **kwargs)
        if made is None:
            return {}
    elif not isinstance(made, Key):
        made = _fill(task, made, args, kwargs, "key")
    return {
        "unique_key": _unique_key(made),
        "unique_until": task.unique_until,
        "unique_for_ms": None if task.unique_for is None else round(task.unique_for * 1000),
        "on_conflict": task.on_conflict,
    }


# Limits


class UnresolvedInput:
    """The unknown first argument of a call that gets it from its parent: no key can use it."""

    def _refuse(self, *args: Any) -> NoReturn:
        raise InvalidTask(
            "A key is made from the first argument, which is not known before the job before has ended. Take"
            " another argument for the key, or give all arguments with si()."
        )

    __format__ = __str__ = __getitem__ = __getattr__ = __eq__ = __hash__ = __int__ = __iter__ = _refuse


def check_limit(task: LeaseQueueTask[..., Any]) -> None:
    """Raise ``InvalidTask`` if the limit is invalid, or its template names an unknown argument."""
    limit: Any = task.limit
    if limit is None:
        return
    if not isinstance(limit, Limit):
        raise InvalidTask(f"limit must be a Limit, such as Limit('customer:{{id}}', concurrency=1); it is {limit!r}.")
    if limit.key is None:
        _check_template(task.func, task.takes_context, limit.template, "the template of a limit", _limit_key)


def limit_of_call(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Limited | None:
    """Return the limit that a call of a task is under, if it is; arguments are as JSON gives them back."""
    limit: Limit | None = getattr(task, "limit", None)
    if limit is None:
        return None
    args, kwargs = decoded(args, kwargs)
    if limit.key is None:
        key: Any = _fill(task, limit.template, args, kwargs, "limit")
    else:
        key = limit.key(*args, **kwargs)
    return None if key is None else Limited(_limit_key(key), limit.values)


def _limit_key(key: Any) -> str:
    with invalid_task():
        return check_limit_key(key)


# Codecs: arguments beyond JSON, where ``LEASEQUEUE["TASK_CODECS"]`` names their types


class _Codec(NamedTuple):
    type: type
    write: Callable[[Any], str]
    read: Callable[[str], Any]


#: Stored is an object with one name: ``{"$uuid": "..."}``.
_CODECS = {
    "uuid": _Codec(UUID, str, UUID),
    "datetime": _Codec(datetime, datetime.isoformat, datetime.fromisoformat),
    "date": _Codec(date, date.isoformat, date.fromisoformat),
    "decimal": _Codec(Decimal, str, Decimal),
}
_CODEC_NAMES = {codec.type: name for name, codec in _CODECS.items()}
_MARKS = {f"${name}": name for name in _CODECS}


def _marked(value: Any) -> str | None:
    """Return the name of the codec that wrote a value; ``None`` if it is not in use."""
    if type(value) is not dict or len(value) != 1:
        return None
    name = _MARKS.get(next(iter(value)))
    return name if name in conf.settings.TASK_CODECS else None


def encode(value: Any) -> Any:
    """Encode arguments that have a codec; Django checks the others."""
    if isinstance(value, Mapping):
        if (name := _marked(value)) is not None:
            raise ValueError(f"an object whose only name is '${name}' stands for a {name} (LEASEQUEUE['TASK_CODECS'])")
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    # A datetime is a date, too: the nearest class counts.
    name = next((_CODEC_NAMES[kind] for kind in type(value).__mro__ if kind in _CODEC_NAMES), None)
    if name is None or name not in conf.settings.TASK_CODECS:
        return value
    return {f"${name}": _CODECS[name].write(value)}


def decode(value: Any) -> Any:
    """Return arguments as they were given, from JSON."""
    if (name := _marked(value)) is not None:
        text = value[f"${name}"]
        try:
            return _CODECS[name].read(text)
        except (TypeError, ValueError, AttributeError, InvalidOperation) as error:
            raise InvalidOption(f"an argument is no {name}: {text!r:.80}.") from error
    if type(value) is dict:
        return {key: decode(item) for key, item in value.items()}
    return [decode(item) for item in value] if type(value) is list else value


def decoded(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of a stored call as they were given."""
    return (decode(args), decode(kwargs)) if conf.settings.TASK_CODECS else (args, kwargs)


def shown(value: Any) -> Any:
    """Return a stored argument for people: codec values as their text."""
    if not conf.settings.TASK_CODECS:
        return value
    if (name := _marked(value)) is not None:
        return value[f"${name}"]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list) else value

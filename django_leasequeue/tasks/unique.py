"""Keys of unique tasks: what a task says about them, and the key of one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..engine.limits import MAX_SPAN_MS, MAX_UNIQUE_BYTES, check_text, seconds_of
from ..exceptions import InvalidOption
from . import templates
from .api import InvalidTask

if TYPE_CHECKING:
    from .task import LeaseQueueTask

#: How long a key holds that has no time: until its task starts, or until it has ended.
UniqueUntil = Literal["start", "end"]
#: What becomes of a task that waits when its key is asked for again.
OnConflict = Literal["ignore", "replace", "reschedule"]


#: What a task says about its key.
_ABOUT_KEY = ("unique_for", "unique_until", "on_conflict")


class Key(str):
    """A key as ``using()`` takes it: a text in which braces mean nothing."""

    __slots__ = ()


def check_key(key: Any) -> str:
    """Return the key of a call.

    Raises:
        InvalidTask: it is no text of 1 to 512 bytes.
    """
    try:
        return check_text(key, "the key of a task", MAX_UNIQUE_BYTES)
    except InvalidOption as error:
        raise InvalidTask(f"{error}") from error


def checked(task: LeaseQueueTask[..., Any]) -> float | None:
    """Check what a task says about its key.

    Args:
        task: the task.

    Returns:
        ``unique_for`` in seconds.

    Raises:
        InvalidTask: a value is not allowed.
    """
    key: Any = task.key
    if isinstance(key, Key):
        check_key(key)
    elif isinstance(key, str):
        if not templates.check_template(task.func, task.takes_context, key, "key"):
            check_key(templates.without_fields(key))
    elif key is not None and not callable(key):
        raise InvalidTask(
            "key must be a text, in which {name} stands for an argument of that name, or a function of the arguments;"
            f" it is {key!r}."
        )
    if task.unique_until not in (None, "start", "end"):
        raise InvalidTask(f"unique_until must be 'start' or 'end'; it is {task.unique_until!r}.")
    if task.on_conflict not in (None, "ignore", "replace", "reschedule"):
        raise InvalidTask(f"on_conflict must be 'ignore', 'replace' or 'reschedule'; it is {task.on_conflict!r}.")
    return _seconds(task)


def _seconds(task: LeaseQueueTask[..., Any]) -> float | None:
    span: Any = task.unique_for
    if span is None:
        return None
    if task.unique_until is not None:
        raise InvalidTask("a key holds for unique_for seconds or until unique_until: give one of them.")
    try:
        seconds = float(seconds_of(span, "unique_for"))
    except ValueError as error:
        raise InvalidTask(f"{error}") from error
    if not 0.001 <= seconds <= MAX_SPAN_MS / 1000:
        raise InvalidTask(f"unique_for must be seconds, more than 0 and at most a hundred years; it is {span!r}.")
    return seconds


def merged(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of ``using()`` with those that follow: its word on how long a key holds replaces the other."""
    more = dict(changes)
    if isinstance(changes.get("key"), str):
        more["key"] = Key(changes["key"])
    if "unique_for" in changes and "unique_until" not in changes:
        more["unique_until"] = None
    elif "unique_until" in changes and "unique_for" not in changes:
        more["unique_for"] = None
    return more


def is_about_key(task: LeaseQueueTask[..., Any]) -> bool:
    """Return whether a task has a key, or says how long one holds: ``options`` tells."""
    return any(getattr(task, name) is not None for name in ("key", *_ABOUT_KEY))


def options(task: LeaseQueueTask[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a new job that make it unique; none if this call has no key.

    Args:
        task: the task.
        args: positional arguments, as JSON gives them back.
        kwargs: keyword arguments.

    Raises:
        InvalidTask: the key cannot be made of the arguments or is not allowed; or there is none to hold.
    """
    made: Any = task.key
    if made is None:
        named = [name for name in _ABOUT_KEY if getattr(task, name) is not None]
        if named:
            raise InvalidTask(f"{named[0]} is about a key: give the task one, as in using(key='invoice-7').")
        return {}
    if callable(made):
        made = made(*args, **kwargs)
        if made is None:
            return {}
    elif not isinstance(made, Key):
        made = templates.fill(task, made, args, kwargs, "key")
    return {
        "unique_key": check_key(made),
        "unique_until": task.unique_until,
        "unique_for_ms": None if task.unique_for is None else round(task.unique_for * 1000),
        "on_conflict": task.on_conflict,
    }

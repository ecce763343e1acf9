"""Arguments of tasks beyond JSON: UUIDs, dates, times and decimals, where ``LEASEQUEUE["TASK_CODECS"]`` names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple
from uuid import UUID

from .. import conf
from ..exceptions import InvalidOption


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
_NAMES = {codec.type: name for name, codec in _CODECS.items()}
_MARKS = {f"${name}": name for name in _CODECS}


def _marked(value: Any) -> str | None:
    """Return the name of the codec that wrote a value, ``None`` if none that is in use did."""
    if type(value) is not dict or len(value) != 1:
        return None
    name = _MARKS.get(next(iter(value)))
    return name if name in conf.settings.TASK_CODECS else None


def encode(value: Any) -> Any:
    """Return arguments with what has a codec as JSON; the rest is left to Django's check."""
    if isinstance(value, Mapping):
        if (name := _marked(value)) is not None:
            raise ValueError(f"an object whose only name is '${name}' stands for a {name} (LEASEQUEUE['TASK_CODECS'])")
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    # A datetime is a date, too: the nearest class counts.
    name = next((_NAMES[kind] for kind in type(value).__mro__ if kind in _NAMES), None)
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
    """Return a stored argument for people: of what a codec wrote only the text."""
    if not conf.settings.TASK_CODECS:
        return value
    if (name := _marked(value)) is not None:
        return value[f"${name}"]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list) else value

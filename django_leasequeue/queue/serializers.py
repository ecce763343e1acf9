"""From values to stored payloads, and back.

JSON goes to ``jsonb`` columns, where SQL and the admin can read it; what other serializers make, and bytes that a
caller gives, go to ``bytea`` columns as they are, without base64.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

from django.utils.module_loading import import_string

from .. import conf
from ..exceptions import InvalidOption, SerializerError


@runtime_checkable
class Dumper(Protocol):
    """A pair of ``dumps`` (value to bytes) and ``loads`` (bytes to value): a module such as ``pickle`` is one."""

    def dumps(self, value: Any, /) -> bytes: ...

    def loads(self, body: bytes, /) -> Any: ...


class Serializer(NamedTuple):
    """A way to write a queue's payloads and results; ``dumps`` and ``loads`` are ``None`` for JSON."""

    name: str
    dumps: Callable[[Any], bytes] | None = None
    loads: Callable[[bytes], Any] | None = None

    def write(self, value: Any, what: str = "the payload") -> tuple[Any, bytes | None]:
        """Return (JSON value, body): one of them holds ``value``, the other is ``None``."""
        if self.dumps is None:
            return (None, bytes(value)) if isinstance(value, bytes | bytearray | memoryview) else (value, None)
        try:
            body = self.dumps(value)
        except Exception as error:
            raise SerializerError(f"{what} cannot be written with the serializer {self.name!r}: {error}") from error
        if not isinstance(body, bytes):
            raise SerializerError(
                f"dumps of the serializer {self.name!r} must return bytes; it returned a {type(body).__name__}."
            )
        return None, body

    def read(self, value: Any, body: bytes | None, what: str = "the payload") -> Any:
        """Return the stored value: the body, or the JSON value without one."""
        if body is None:
            return value
        if self.loads is None:
            return body
        try:
            return self.loads(body)
        except Exception as error:
            raise SerializerError(f"{what} cannot be read with the serializer {self.name!r}: {error}") from error


def _bytes_only(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"it must be bytes, it is a {type(value).__name__}")
    return bytes(value)


@cache
def _msgpack() -> Serializer:
    try:
        import msgpack
    except ImportError as error:
        raise InvalidOption(
            "the serializer 'msgpack' needs the extra: pip install 'django-leasequeue[msgpack]'."
        ) from error
    # Times as MessagePack's own timestamps, read as aware UTC datetimes.
    return Serializer(
        "msgpack",
        lambda value: bytes(msgpack.packb(value, datetime=True)),
        lambda body: msgpack.unpackb(body, timestamp=3, strict_map_key=False),
    )


JSON = Serializer("json")
_BYTES = Serializer("bytes", _bytes_only, bytes)
_BUILT_IN: dict[str, Callable[[], Serializer]] = {"json": lambda: JSON, "bytes": lambda: _BYTES, "msgpack": _msgpack}


def find(name: str) -> Serializer:
    """Return the serializer of a name: ``json``, ``bytes``, ``msgpack``, or one of ``LEASEQUEUE["SERIALIZERS"]``."""
    declared = conf.settings.SERIALIZERS
    if name in declared:
        return _imported(name, declared[name])
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    known = ", ".join(sorted({*_BUILT_IN, *declared}))
    raise InvalidOption(f"there is no serializer {name!r}; there are {known}. Name yours in LEASEQUEUE['SERIALIZERS'].")


def of(given: str | Dumper) -> Serializer:
    """Return the serializer of a name, or of an object with ``dumps`` and ``loads``."""
    if isinstance(given, str):
        return find(given)
    if isinstance(given, Serializer):
        return given
    if not (callable(getattr(given, "dumps", None)) and callable(getattr(given, "loads", None))):
        raise InvalidOption(f"a serializer is a name or an object with dumps and loads; it is {given!r}.")
    return Serializer(getattr(given, "__name__", type(given).__name__), given.dumps, given.loads)


@cache
def _imported(name: str, path: str | tuple[str, ...]) -> Serializer:
    where = f"LEASEQUEUE['SERIALIZERS'][{name!r}]"
    try:
        if isinstance(path, str):
            found = _object(path)
            return Serializer(name, found.dumps, found.loads)
        dumps, loads = path
        return Serializer(name, _object(dumps), _object(loads))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InvalidOption(
            f"{where} must be the dotted path of something with dumps and loads, or a pair of paths; it is {path!r}:"
            f" {error}"
        ) from error


def _object(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return import_string(path)

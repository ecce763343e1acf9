"""Strict fields for request bodies: JSON types are not converted into each other, and messages say what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from django.utils.functional import lazy
from rest_framework import serializers

from ..engine.codec import Raw
from ..engine.limits import MAX_NODE_BYTES, MAX_SEQ

Json = dict[str, Any]
OPTIONAL: dict[str, Any] = {"required": False, "allow_null": True}


class Field(serializers.Field):  # type: ignore[type-arg]  # generic for the type checker only
    """A field of a request's body: it reads, checks and describes its value."""

    #: Its JSON schema; functions in it are called when the document is made.
    schema: Json = {}

    def to_representation(self, value: Any) -> Any:
        return value  # answers are built by hand


def whole(data: Any) -> int | None:
    """Return a JSON number without a fraction as an integer, also ``340.0`` and ``1e3``; ``None`` for all else."""
    if isinstance(data, Raw):
        data = float(data.text)
    if isinstance(data, float):
        return int(data) if data.is_integer() else None
    return data if isinstance(data, int) and not isinstance(data, bool) else None


#: Text that PostgreSQL stores.
STORABLE = r"^[^\u0000]*$"


def storable(text: str) -> int:
    """Return the size of ``text`` in bytes, -1 if PostgreSQL cannot store it (NUL or a lone surrogate)."""
    if "\x00" in text:
        return -1
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1


class Body(serializers.Serializer):  # type: ignore[type-arg]
    """The body of a request; null is the same as absent, except where a field takes it."""

    #: Whether it holds records or results: others are small.
    bulk: ClassVar[bool] = False
    #: What its JSON schema has beside the fields: which of them exclude or need each other.
    also: ClassVar[Json] = {}
    #: Fields for which null is a value.
    nulls: frozenset[str] = frozenset()
    _shared: dict[type[Body], Body] = {}

    @classmethod
    def validated(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        # One instance for all requests: validation keeps nothing in it, and making one costs more than validating.
        shared = Body._shared.get(cls)
        if shared is None:
            shared = Body._shared[cls] = cls()
        found: dict[str, Any] = shared.run_validation(data)
        return {name: value for name, value in found.items() if value is not None or name in cls.nulls}

    @classmethod
    def unknown(cls, data: Mapping[str, Any]) -> list[str]:
        """Return the names of what stands in a valid body without being a field of it."""
        return [name for name in data if name not in cls._declared_fields]

    @classmethod
    def check_large(cls, fields: Mapping[str, Any]) -> None:
        """Check what a large body brings before it is written as JSON again, which would hold the process."""


class Integer(Field):
    """An integer: out of range refused, or cut (``clamp``), or cut above to what ``most`` returns at the moment."""

    default_error_messages = {"type": "it must be an integer.", "range": "it must be from {low} to {high}."}

    def __init__(
        self,
        *,
        low: int = 0,
        high: int = MAX_SEQ,
        clamp: bool = False,
        most: Callable[[], int] | None = None,
        **said: Any,
    ) -> None:
        self.low, self.high, self.clamp, self.most = low, high, clamp, most
        self.schema = {"type": "integer"} if clamp else {"type": "integer", "minimum": low}
        if clamp or most is not None:
            given = said.get("help_text")
            said["help_text"] = lazy(
                lambda: f"{given + ' ' if given else ''}Cut to {f'{low}..{high}' if most is None else most()}.", str
            )()
        else:
            self.schema["maximum"] = high
        super().__init__(**said)

    def to_internal_value(self, data: Any) -> int:
        number = whole(data)
        if number is None:
            self.fail("type")
        if self.clamp:
            return min(max(number, self.low), self.high)
        if number < self.low or (self.most is None and number > self.high):
            self.fail("range", low=self.low, high=self.high)
        return number if self.most is None else min(number, self.most())


class Boolean(Field):
    """``true`` or ``false``."""

    default_error_messages = {"type": "it must be true or false."}
    schema = {"type": "boolean"}

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("type")
        return data


class Text(Field):
    """Text of 1 to ``high`` bytes; ``pattern`` only describes it: the caller checks that."""

    default_error_messages = {"text": "it must be 1 to {high} bytes of text without NUL."}

    def __init__(self, *, high: int, pattern: str = STORABLE, **said: Any) -> None:
        self.high, size = high, {"minLength": 1, "maxLength": high, "pattern": pattern}
        self.schema = {"type": "string", **size, "description": f"At most {high} bytes of UTF-8."}
        super().__init__(**said)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or not 1 <= storable(data) <= self.high:
            self.fail("text", high=self.high)
        return data


_MISSING = {"required": "it is missing: the worker's name, 1 to 128 bytes of text."}
NodeName = partial(Text, high=MAX_NODE_BYTES, help_text="The worker's name.", error_messages=_MISSING)


class Word(Field):
    """One of some words."""

    default_error_messages = {"word": "it must be one of {words}."}

    def __init__(self, words: tuple[str, ...], **said: Any) -> None:
        self.words = words
        self.schema = {"type": "string", "enum": [*words, None] if said.get("allow_null") else list(words)}
        super().__init__(**said)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data not in self.words:
            self.fail("word", words=", ".join(self.words))
        return data


class Parsed(Field):
    """A field of this schema; ``parse`` returns its value, or raises ``ValidationError``."""

    def __init__(self, schema: Json, parse: Callable[[Any], Any], **said: Any) -> None:
        self.schema, self.parse = schema, parse
        super().__init__(**said)

    def to_internal_value(self, data: Any) -> Any:
        return self.parse(data)


Anything = partial(Parsed, {}, lambda data: data, allow_null=True)

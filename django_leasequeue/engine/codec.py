"""JSON as the tables take it, and the opaque cursors of pages."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isfinite
from typing import Any

from ..exceptions import InvalidOption
from .limits import MAX_SEQ

_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # not in typeshed


def loads(text: str | bytes, **hooks: Any) -> Any:
    """Parse JSON text."""
    try:
        if type(text) is str and not hooks:
            # What json.loads does around this takes as long as reading a small payload.
            try:
                value, end = _scan(text, 0)
            except StopIteration:  # spaces in front, or no JSON
                end = -1
            if end == len(text):
                return value
        return json.loads(text, **hooks)
    except RecursionError:
        pass
    # How deep the caller stands counts as well. In a thread of its own all can be read that could be written.
    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(json.loads, text, **hooks).result()
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error


class Raw:
    """JSON text that becomes part of other JSON text as it is, such as a number with the digits that a client wrote."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class JsonText(str):
    """JSON text that stands for a whole payload: it was written before."""

    __slots__ = ()


class _RawFound(Exception):
    """Raised when a value holds ``Raw``, which the encoder cannot write."""


def _refuse(value: object) -> Any:
    if isinstance(value, Raw):
        raise _RawFound
    raise TypeError(f"an object of type {type(value).__name__} is not JSON")


def _raw_text(value: Any) -> Any:
    return value.text if isinstance(value, Raw) else _refuse(value)


def dumps_raw(value: Any, text_of: Callable[[Any], str] = _raw_text) -> str:
    """Return a value as JSON text, with parts that are JSON text already."""
    # The encoder cannot put text in as it is: random marks stand for the parts until it is done.
    mark = secrets.token_hex(16)
    texts: list[str] = []

    def stand_in(part: Any) -> str:
        texts.append(text_of(part))
        return f"{mark}{len(texts) - 1}"

    text = json.dumps(value, default=stand_in, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub(f'"{mark}([0-9]+)"', lambda found: texts[int(found[1])], text) if texts else text


# JSONEncoder.encode builds this C encoder anew on every call, which takes longer than the encoding of a small payload.
_chunks: Callable[[object, int], Iterable[str]] = json.encoder.c_make_encoder(  # type: ignore[attr-defined]  # not in typeshed
    None, _refuse, json.encoder.encode_basestring, None, ":", ",", False, False, False
)


def dumps(value: Any, what: str = "data") -> str:
    """Return ``value`` as JSON text that jsonb accepts; a ``JsonText`` is that already."""
    if type(value) is JsonText:
        return str(value)
    try:
        try:
            text = "".join(_chunks(value, 0))
        except _RawFound:
            text = dumps_raw(value)
        if not text.isascii():
            text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOption(f"{what} must be JSON: {error}.") from error
    if "\\u0000" in text and "\\u0000" in text.replace("\\\\", ""):
        raise InvalidOption(f"{what} must not contain the character U+0000: PostgreSQL cannot store it in jsonb.")
    return text


def find_unwritable(value: Any, at: str = "", *, normal: bool = False) -> str | None:
    """Name the part of a value that is not JSON, and its place, or return ``None``. ``normal``: as Django does."""
    kind = type(value).__name__
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, float):
        return None if isfinite(value) else f"{value!r}{at}"
    if isinstance(value, str) or (normal and isinstance(value, bytes)):
        try:
            text = value if isinstance(value, str) else value.decode()
            text.encode()
        except UnicodeError:
            return f"a {kind} that is no text{at}"
        return f"a {kind} with U+0000{at}" if "\x00" in text else None
    if len(at) > 1_000:
        return "a value that is nested too deep"
    try:
        if isinstance(value, Mapping if normal else dict):
            keys = [key for key in value if not isinstance(key, str | int | float | None)]
            if keys:
                return f"a key of type {type(keys[0]).__name__}{at}"
            parts: Iterable[tuple[Any, Any]] = value.items()
        elif isinstance(value, Sequence if normal else list | tuple):
            parts = enumerate(value)
        else:
            return f"an object of type {kind}{at}"
        found = (find_unwritable(part, f"{at or ' at '}[{key!r}]", normal=normal) for key, part in parts)
        return next(filter(None, found), None)
    except RecursionError:
        return "a value that is nested too deep"


def encode_cursor(*values: int | str) -> str:
    """Return the cursor of these values."""
    return base64.urlsafe_b64encode(dumps(list(values)).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, kinds: Sequence[type], *, low: int = 0) -> list[Any] | None:
    """Return the values of a cursor, ``None`` for none or an empty one."""
    if not cursor:
        return None
    try:
        values: Any = loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        known = isinstance(values, list) and [type(value) for value in values] == list(kinds)
        if not known or any(isinstance(value, int) and not low <= value <= MAX_SEQ for value in values):
            raise ValueError("its values are of other kinds")
        if unwritable := find_unwritable(values):
            raise ValueError(unwritable)
    except (TypeError, ValueError) as error:
        raise InvalidOption(
            f"the cursor {str(cursor)[:80]!r} is not one that a listing gave; leave it out for the first page."
        ) from error
    return list(values)

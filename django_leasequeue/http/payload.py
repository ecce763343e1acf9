"""JSON in and out: orjson when it is installed, the standard library otherwise, with the same answers."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from ..exceptions import InvalidOption
from .options import options

try:
    import orjson
except ImportError:  # the extra `fast` is not installed
    orjson = None  # type: ignore[assignment]  # tested below

#: orjson turns integers beyond 64 bits into floats; these bodies are read by the standard library, which keeps them.
_LONG_NUMBER = re.compile(rb"\d{18}")
_CONTAINERS = (dict, list)


class Raw:
    """JSON text that goes into a body as it is."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def loads(body: bytes) -> Any:
    """Return what a JSON text says.

    Raises:
        ValueError: it is not JSON (or not UTF-8); the message says where.
    """
    if orjson is not None and _LONG_NUMBER.search(body) is None:
        return orjson.loads(body)
    try:
        return json.loads(body.decode(), parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def too_deep(value: Any, limit: int) -> bool:
    """Return whether containers are nested deeper than ``limit``."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    depth = 0
    while level:
        depth += 1
        if depth > limit:
            return True
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, _CONTAINERS)
        ]
    return False


def check_depth(value: Any, written: bytes | str) -> None:
    """Check that a body is nested no deeper than ``MAX_DEPTH``.

    Args:
        value: the body.
        written: its JSON text; where that has few brackets nothing is looked through.

    Raises:
        InvalidOption: it is nested deeper.
    """
    limit = options().MAX_DEPTH
    text = written if isinstance(written, bytes) else written.encode()
    if text.count(b"{") + text.count(b"[") > limit and too_deep(value, limit):
        raise InvalidOption(f"The body is nested more than {limit} deep: flatten the data.")


def raw(text: str | None) -> Any:
    """Return JSON text as a value that ``dumps`` takes as it is, numbers as they were written; ``None`` is null."""
    if text is None:
        return None
    return orjson.Fragment(text) if orjson is not None else Raw(text)


def _text(value: Any) -> str:
    if isinstance(value, Raw):
        return value.text
    if orjson is not None and isinstance(value, orjson.Fragment):
        return orjson.dumps(value).decode()
    raise TypeError(f"{type(value).__name__} is not JSON")


def dumps(value: Any) -> bytes:
    """Return a value as JSON text."""
    if orjson is not None:
        try:
            return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
        except TypeError:  # an integer beyond 64 bits, which orjson does not write
            pass
    return _dumps(value).encode()


def _dumps(value: Any) -> str:
    """Write a value with the standard library, which has no way to put text in: marks nobody can guess stand for it."""
    mark = secrets.token_hex(16)
    texts: list[str] = []

    def stand_in(part: Any) -> str:
        texts.append(_text(part))
        return f"{mark}{len(texts) - 1}"

    text = json.dumps(value, default=stand_in, ensure_ascii=False, separators=(",", ":"))
    return re.sub(f'"{mark}([0-9]+)"', lambda found: texts[int(found[1])], text) if texts else text


def size(value: Any) -> int:
    """Return how many bytes a value has as JSON text."""
    return len(dumps(value))

"""JSON as the tables take it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from ..exceptions import InvalidOption

loads = json.loads


def _refuse(value: object) -> Any:
    raise TypeError(f"an object of type {type(value).__name__} is not JSON")


# JSONEncoder.encode builds this C encoder anew on every call, which takes longer than the encoding of a small payload.
_chunks: Callable[[object, int], Iterable[str]] = json.encoder.c_make_encoder(  # type: ignore[attr-defined]  # not in typeshed
    None, _refuse, json.encoder.encode_basestring, None, ":", ",", False, False, False
)


def dumps(value: Any, what: str = "data") -> str:
    """Return ``value`` as JSON text that jsonb accepts.

    Raises:
        InvalidOption: it is not JSON (NaN and infinity are not), or holds the character U+0000 or a lone surrogate.
    """
    try:
        text = "".join(_chunks(value, 0))
        if not text.isascii():
            text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOption(f"{what} must be JSON: {error}.") from error
    if "\\u0000" in text and "\\u0000" in text.replace("\\\\", ""):
        raise InvalidOption(f"{what} must not contain the character U+0000: PostgreSQL cannot store it in jsonb.")
    return text

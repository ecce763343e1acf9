"""JSON as the tables take it."""

from __future__ import annotations

import json
from typing import Any

from ..exceptions import InvalidOption

loads = json.loads
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def dumps(value: Any, what: str = "data") -> str:
    """Return ``value`` as JSON text that jsonb accepts.

    Raises:
        InvalidOption: it is not JSON (NaN and infinity are not), or holds the character U+0000 or a lone surrogate.
    """
    try:
        text = _encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOption(f"{what} must be JSON: {error}.") from error
    if "\\u0000" in text and "\\u0000" in text.replace("\\\\", ""):
        raise InvalidOption(f"{what} must not contain the character U+0000: PostgreSQL cannot store it in jsonb.")
    return text

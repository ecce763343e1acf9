"""Opaque pagination cursors: where the next page of a listing begins."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from ..exceptions import InvalidOption
from . import codec
from .limits import MAX_SEQ


def encode_cursor(*values: int | str) -> str:
    """Return the cursor of these values."""
    return base64.urlsafe_b64encode(codec.dumps(list(values)).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, kinds: Sequence[type], *, low: int = 0) -> list[Any] | None:
    """Return the values of a cursor, ``None`` for none."""
    if cursor is None:
        return None
    try:
        values = codec.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (TypeError, ValueError, binascii.Error) as error:
        raise _refused(cursor) from error
    if (
        not isinstance(values, list)
        or [type(value) for value in values] != list(kinds)
        or any(isinstance(value, int) and not low <= value <= MAX_SEQ for value in values)
    ):
        raise _refused(cursor)
    return values


def _refused(cursor: str) -> InvalidOption:
    return InvalidOption(
        f"the cursor {str(cursor)[:80]!r} is not one that a listing gave; leave it out for the first page."
    )

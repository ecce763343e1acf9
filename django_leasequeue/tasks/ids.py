"""Ids of task results: UUIDs of version 7 (RFC 9562, section 5.7), so that new ids go to the end of the index."""

from __future__ import annotations

from os import urandom
from time import time_ns

_VARIANTS = "89ab"


def new_id() -> str:
    """Return a new id: 36 characters, milliseconds since 1970 in front, then 74 random bits."""
    millis = f"{time_ns() // 1_000_000:012x}"
    noise = urandom(10)
    rest = noise.hex()
    return f"{millis[:8]}-{millis[8:]}-7{rest[:3]}-{_VARIANTS[noise[1] & 3]}{rest[4:7]}-{rest[7:19]}"

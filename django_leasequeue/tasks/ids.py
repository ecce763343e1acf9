"""Ids of task results: UUIDs of version 8 (RFC 9562, section 5.8) that name the job and end in random bits."""

from __future__ import annotations

from os import urandom

#: Digits that a UUID of RFC 9562 may have after its third hyphen: two fixed bits, two random ones.
_VARIANTS = "89ab"


def new_end() -> str:
    """Return the end of a new id, 62 random bits; the engine puts the job's number in front (``engine.make_id``)."""
    noise = urandom(8)
    rest = noise.hex()
    return f"{_VARIANTS[noise[0] & 3]}{rest[1:4]}-{rest[4:16]}"

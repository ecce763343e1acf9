"""Ids of task results: UUIDs of version 8 (RFC 9562, section 5.8) that name the job and end in random bits."""

from __future__ import annotations

import re
from os import urandom

from ..exceptions import InvalidOption

#: Digits that a UUID of RFC 9562 may have after its third hyphen: two fixed bits, two random ones.
_VARIANTS = "89ab"


def new_end() -> str:
    """Return the end of a new id, 62 random bits; the engine puts the job's number in front (``engine.make_id``)."""
    noise = urandom(8)
    rest = noise.hex()
    return f"{_VARIANTS[noise[0] & 3]}{rest[1:4]}-{rest[4:16]}"


_ID = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-8([0-9a-f]{3})-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


def number_of(id: str) -> int:
    """Return the number of the job that an id names.

    Raises:
        InvalidOption: it names none.
    """
    match = _ID.match(id) if isinstance(id, str) else None
    if match is None:
        raise InvalidOption(f"the id of a job in a workflow is that of its task's result; it is {id!r:.80}.")
    return int("".join(match.groups()), 16)

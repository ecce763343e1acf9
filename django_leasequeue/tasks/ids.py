"""Ids of task results: UUIDs of version 8 (RFC 9562, section 5.8) that name the job and end in random bits."""

from __future__ import annotations

from collections.abc import Iterator
from os import urandom

from ..engine import rows
from ..exceptions import InvalidOption

#: Digits that a UUID of RFC 9562 may have after its third hyphen: two fixed bits, two random ones.
_VARIANTS = "89ab"
#: Ends for which random bits are read at once.
_MOST_AT_ONCE = 256


def new_ends() -> Iterator[str]:
    """Yield ends of new ids, 62 random bits each; the engine puts the job's number in front (``engine.make_id``)."""
    count = 1
    while True:
        # One call of the system for many: it costs more than what is made of it.
        noise = urandom(8 * count)
        digits = noise.hex()
        for start in range(0, 16 * count, 16):
            yield f"{_VARIANTS[noise[start >> 1] & 3]}{digits[start + 1 : start + 4]}-{digits[start + 4 : start + 16]}"
        count = min(2 * count, _MOST_AT_ONCE)


def new_end() -> str:
    """Return one end of a new id, see ``new_ends``."""
    return next(new_ends())


def number_of(id: str) -> int:
    """Return the number of the job that an id names.

    Raises:
        InvalidOption: it names none.
    """
    number = rows.number_of(id)
    if number is None:
        raise InvalidOption(f"the id of a job in a workflow is that of its task's result; it is {id!r:.80}.")
    return number

"""Floors: lower bounds that keep readers from walking over dead index entries (DESIGN section 4, point 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from . import arrays
from .limits import check_ids
from .operation import Steps, operation


class Floor(NamedTuple):
    """A floor that moved."""

    queue_id: int
    kind: int
    rank: int
    value: int
    candidate: int | None


@operation
def advance_floors(queue_ids: Sequence[int] | None = None) -> Steps[list[Floor]]:
    """Take the floors of these queues (all, by default) one step further; call it about once a second.

    Returns:
        The floors that changed.
    """
    rows = yield "floor", {"queues": None if queue_ids is None else arrays.integers(check_ids(queue_ids))}
    return [Floor._make(row) for row in rows]

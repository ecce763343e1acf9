"""Taking jobs and records out, wherever they stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .. import arrays
from ..operation import Steps


class Removed(NamedTuple):
    """A job or record that was taken out. ``state`` is the number of the state that it had."""

    seq: int
    state: int
    key: str | None
    name: str | None
    deliveries: int
    bytes: int


def remove_steps(
    queue_id: int,
    seqs: Sequence[int],
    places: Sequence[int],
    *,
    reason: str | None = None,
    expired: bool = False,
    gap: str | None = None,
) -> Steps[list[Removed]]:
    """Steps that take jobs of one queue out; those that stand elsewhere by then are left alone."""
    if not seqs:
        return []
    rows = yield (
        "remove",
        {
            "queue": queue_id,
            "seqs": arrays.integers(seqs),
            "places": arrays.integers(places),
            "reason": reason,
            "expired": expired,
            "gap": gap,
        },
    )
    return [Removed._make(row[:6]) for row in rows]

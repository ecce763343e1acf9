"""Taking jobs and records out, wherever they stand, and the keys that are taken by those that stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...enums import JobState, ResultState
from .. import arrays
from ..operation import Steps
from ..rows import Enqueued, EnqueueStatus


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


#: Words for the states of jobs, and of results as 10 and their number.
STATES = {int(state): state.label for state in JobState} | {10 + int(state): state.label for state in ResultState}
_COMPLETED = 10 + ResultState.COMPLETED

#: Verdicts of the statement ``key_taken``: the holder counts; it is a dead job past its time.
DUPLICATE, OVER = 0, 2


class Holder(NamedTuple):
    """A row of ``key_taken``: the job that holds a key. ``state`` is a ``JobState``, or 10 and a ``ResultState``."""

    key: str
    seq: int
    state: int
    verdict: int
    queue_id: int


def existing(seq: int, state: int) -> Enqueued:
    """Return the answer to who wanted the key of a job that is there; ``state`` is as in ``Holder``."""
    status = EnqueueStatus.COMPLETED if state == _COMPLETED else EnqueueStatus.DUPLICATE
    return Enqueued(seq, status, STATES[state], None)


def holder_steps(project: str, queue: str, keys: str) -> Steps[list[Holder]]:
    """Steps that read who holds keys, and remove the dead jobs past their time among them."""
    rows = yield "key_taken", {"project": project, "queue": queue, "keys": keys}
    found = [Holder._make(row) for row in rows]
    over = [holder.seq for holder in found if holder.verdict == OVER]
    if over:
        yield from remove_steps(found[0].queue_id, over, [JobState.DEAD], expired=True)
    return found

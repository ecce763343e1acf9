"""What a stream of jobs has to know: which of its leases stand, and when to look again."""

from __future__ import annotations

from collections.abc import Mapping

from .. import arrays
from ..operation import Steps, operation


@operation
def still_held(leases: Mapping[int, int]) -> Steps[dict[int, float]]:
    """Return those leases that still stand, and the seconds until each deadline.

    Args:
        leases: seq -> token.
    """
    rows = yield (
        "work_held",
        {"seqs": arrays.integers(leases), "claims": arrays.integers(set(leases.values()))},
    )
    return {seq: left for seq, token, left in rows if leases[seq] == token}


@operation
def next_due(queue_id: int) -> Steps[float | None]:
    """Return the seconds until a queue has a delayed job that is due or a lease that expires, ``None`` for never."""
    ((seconds,),) = yield "work_due", {"queue": queue_id}
    return None if seconds is None else float(seconds)

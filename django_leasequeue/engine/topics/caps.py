"""Caps of topics: how many records and bytes may be live, and what a write does when there is no room.

Only topics that have a cap pay for it: their writers take turns (an advisory lock, until the transaction ends), and a
topic at its cap is counted again when acks may have made room.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ...enums import Discard, JobState, QueueType
from ...exceptions import QueueFull
from .. import arrays
from ..jobs.remove import remove_steps
from ..operation import Steps

logger = logging.getLogger("django_leasequeue")

#: Records that one statement removes.
TRIM = 1_000


class _Room(NamedTuple):
    """The figures of a capped topic: at most ``records`` and ``bytes`` are live; ``None`` when nobody counted."""

    name: str
    type: str
    cap_records: int
    cap_bytes: int
    discard: str
    records: int | None
    bytes: int | None

    @property
    def over(self) -> tuple[int, int]:
        """Records and bytes above the cap, 0 and 0 when there is room."""
        return (
            max((self.records or 0) - self.cap_records, 0) if self.cap_records else 0,
            max((self.bytes or 0) - self.cap_bytes, 0) if self.cap_bytes else 0,
        )


def enforce_steps(queue_id: int, seqs: Sequence[int], *, dead_letters: bool = False) -> Steps[None]:
    """Steps that make a topic keep its cap after records were written, in the writer's transaction."""
    (noted,) = yield "cap_note", {"queue": queue_id, "seqs": arrays.integers(seqs)}
    room = _Room._make(noted)
    # Logs lose records only to those who say so. A queue loses them with every ack: the figures are a bound there.
    if None in (room.records, room.bytes) or (room.type == QueueType.QUEUE and any(room.over)):
        ((records, size),) = yield "cap_count", {"queue": queue_id}
        room = room._replace(records=records, bytes=size)
    if any(room.over) and room.discard == Discard.REJECT:
        limit = " and ".join(
            f"{cap} {what}" for cap, what in ((room.cap_records, "records"), (room.cap_bytes, "bytes")) if cap
        )
        full = f"{room.name!r} is full: its cap is {limit}."
        if dead_letters:
            logger.warning("%s Dead letters are written to it all the same. Deal with them, or raise the cap.", full)
            return
        raise QueueFull(f"{full} Nothing was written. Consume or delete records, or raise the cap.")
    while any(room.over):
        records, size = room.over
        oldest = [
            seq for (seq,) in (yield "cap_trim", {"queue": queue_id, "records": records, "bytes": size, "size": TRIM})
        ]
        gone = yield from remove_steps(queue_id, oldest, JobState.values, reason="cap", gap="cap")
        if not gone:  # others took them meanwhile: the next write sees to it
            return
        room = room._replace(
            records=(room.records or 0) - len(gone), bytes=(room.bytes or 0) - sum(job.bytes for job in gone)
        )

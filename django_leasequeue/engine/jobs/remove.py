"""Removing jobs in any state, by name and in bulk; and the holders of keys.

``remove_steps`` is the one statement that does it; caps of topics take out the oldest by it, or refuse a write.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ...enums import Discard, JobState, QueueType, ResultState
from ...exceptions import InvalidOption, QueueFull
from ...words import ENDED, KeyVerdict
from .. import arrays, limits
from ..operation import Statements, operation
from ..queues.queues import require
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
    undo: bool = False,
    gap: str | None = None,
) -> Statements[list[Removed]]:
    """Remove jobs of one queue; jobs that have changed state meanwhile stay.

    With ``undo`` those with steps to undo stay, too: who looked for such steps may have missed one that was being
    committed.
    """
    found: list[Removed] = []
    missing = list(seqs)
    why = {"reason": reason, "expired": expired, "undo": undo, "gap": gap}
    # A claim that runs at the same time takes a job from the one place where a statement looks to the other.
    for _ in range(3 if JobState.LEASED in places else 1):
        if not missing:
            break
        asked = {"queue": queue_id, "seqs": arrays.integers(missing), "places": arrays.integers(places), **why}
        rows = yield "remove", asked
        found += [Removed._make(row[:6]) for row in rows]
        missing = sorted({*missing} - {job.seq for job in found})
    return found


#: Words for the states of jobs, and of results as 10 and their number.
STATES = {int(state): state.label for state in JobState} | {ENDED + int(state): state.label for state in ResultState}
_COMPLETED = ENDED + ResultState.COMPLETED
_NUMBERS = {state.label: int(state) for state in JobState}


class Holder(NamedTuple):
    """A row of ``key_taken``: the job that holds a key. ``state`` is a ``JobState``, or 10 and a ``ResultState``."""

    key: str
    seq: int
    state: int
    verdict: int
    queue_id: int


def existing(seq: int, state: int) -> Enqueued:
    """Return the answer for a key that an existing job holds; ``state`` is as in ``Holder``."""
    status = EnqueueStatus.COMPLETED if state == _COMPLETED else EnqueueStatus.DUPLICATE
    return Enqueued(seq, status, STATES[state], None)


def holder_steps(project: str, queue: str, keys: str) -> Statements[list[Holder]]:
    """Read the holders of keys, and remove expired dead jobs among them."""
    rows = yield "key_taken", {"project": project, "queue": queue, "keys": keys}
    found = [Holder._make(row) for row in rows]
    over = [holder.seq for holder in found if holder.verdict == KeyVerdict.OVER]
    if over:
        yield from remove_steps(found[0].queue_id, over, [JobState.DEAD], expired=True)
    return found


@operation
def purge(
    queue: str,
    *,
    states: Sequence[str] = ("ready", "delayed"),
    before: int | None = None,
    tag: str | None = None,
    tag_prefix: str | None = None,
    project: str = "",
    size: int = 1_000,
) -> Statements[int]:
    """Remove at most ``size`` jobs of a queue by state, number or tag; call again until it returns 0.

    ``states``: any of ``ready``, ``delayed``, ``leased``, ``dead``, ``record``; ``before``: only lower numbers.
    """
    for state in limits.check_list(states, "the states"):
        if not isinstance(state, str) or state not in _NUMBERS:
            raise InvalidOption(f"a state is one of {', '.join(_NUMBERS)}; it is {state!r}.")
    if tag is not None:
        limits.check_text(tag, "tag", limits.MAX_TAG_BYTES)
    if tag_prefix is not None:
        limits.check_text(tag_prefix, "tag_prefix", limits.MAX_TAG_BYTES)
    if before is not None:
        limits.check_integer(before, "before", 0, limits.MAX_SEQ)
    size = limits.check_count(size, "size", 10_000, 1)
    info = yield from require(project, queue, leases=False)
    places = list(dict.fromkeys(_NUMBERS[state] for state in states))
    which = {"states": arrays.integers(places), "before": before, "tag": tag, "tag_prefix": tag_prefix}
    rows = yield "purge", {"queue": info.id, **which, "size": size}
    return len((yield from remove_steps(info.id, [seq for (seq,) in rows], places, reason="purged")))


logger = logging.getLogger("django_leasequeue")

#: Records that one statement removes.
TRIM = 1_000


class _Room(NamedTuple):
    """The figures of a capped topic: at most ``records`` and ``bytes`` are live; ``None``: not counted yet."""

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


def enforce_cap(queue_id: int, seqs: Sequence[int], *, dead_letters: bool = False) -> Statements[None]:
    """Make a topic keep its cap after records were written, in the writer's transaction."""
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
        rows = yield "cap_trim", {"queue": queue_id, "records": records, "bytes": size, "size": TRIM}
        gone = yield from remove_steps(queue_id, [seq for (seq,) in rows], JobState.values, reason="cap", gap="cap")
        if not gone:  # others took them meanwhile: the next write sees to it
            return
        room = room._replace(
            records=(room.records or 0) - len(gone), bytes=(room.bytes or 0) - sum(job.bytes for job in gone)
        )

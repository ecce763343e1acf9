"""Messages and claims as resources, for the Zaqar API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ... import conf
from ...enums import JobState
from .. import arrays, codec, payloads
from ..jobs.read import MAX_PAGE_BYTES
from ..jobs.remove import remove_steps
from ..leases.settle import release
from ..leases.sweep import promote, sweep
from ..limits import MAX_SEQ, check_count, check_seqs, clamp_lease
from ..operation import Statements, operation
from ..rows import Release

#: Places of an unclaimed message.
_FREE = (JobState.READY, JobState.DELAYED, JobState.DEAD)
#: Numbers of claims looked at at once for messages that are held.
LOOK = 1_000


class Message(NamedTuple):
    """A row of ``message_list`` and ``message_get``: ``claim`` holds it, if any; ``age`` in whole seconds."""

    seq: int
    created_at: datetime
    expires_at: datetime | None
    data_json: str | None
    claim: int | None
    age: int
    position: int
    #: Of a task.
    name: str | None

    @property
    def data(self) -> Any:
        return None if self.data_json is None else codec.loads(self.data_json)


class End(NamedTuple):
    """A row of ``message_ends``: the oldest or the newest message; ``age`` in whole seconds."""

    seq: int
    created_at: datetime
    age: int


class LiveClaim(NamedTuple):
    """A live claim with its messages; ``age`` in whole seconds since it was made or renewed."""

    id: int
    node: str
    ttl_ms: int
    age: int
    messages: list[Message]


@operation
def list_messages(
    queue_id: int, *, after: int = 0, size: int = 10, without: str | None = None, leased: bool = False
) -> Statements[list[Message]]:
    """List messages in order, oldest first, behind position ``after``."""
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    yield from sweep([queue_id])
    yield from promote([queue_id])
    found: list[Message] = []
    asked = {"queue": queue_id, "after": after, "origin": without, "look": LOOK}
    rows = yield "message_list", {**asked, "size": size, "held": after if leased else None, "upto": None}
    upto = MAX_SEQ
    while rows:
        page = [Message._make(row) for row in rows]
        # The last row is none of a message if there may be more held ones: its number was looked at last.
        last = page.pop().seq if page[-1].created_at is None else None
        found += page
        held = [message for message in found if message.claim is not None]
        if last is None or len(held) >= size:
            break
        free = [message for message in found if message.claim is None]
        upto = free[-1].position if len(free) == size else upto
        rows = yield "message_list", {**asked, "size": 0, "held": last, "upto": upto}
    ordered = sorted(found, key=lambda message: message.position)[:size]
    return (yield from payloads.page_steps(ordered, MAX_PAGE_BYTES, payloads.ONLY_DATA))


@operation
def get_messages(queue_id: int, seqs: Sequence[int]) -> Statements[list[Message]]:
    """Read messages by number, claimed or not; missing ones are left out."""
    rows = yield "message_get", {"queue": queue_id, "seqs": arrays.integers(check_seqs(seqs))}
    found = [Message._make(row) for row in rows]
    return (yield from payloads.steps(found, payloads.ONLY_DATA))


@operation
def delete_messages(queue_id: int, seqs: Sequence[int]) -> Statements[list[int]]:
    """Delete unclaimed messages; return the numbers of those that went."""
    wanted = check_seqs(seqs)
    gone = yield from remove_steps(queue_id, wanted, _FREE, reason="deleted")
    if len(gone) < len(set(wanted)) and (yield from sweep([queue_id])):
        # Their claim was over: now they are free.
        gone += yield from remove_steps(queue_id, wanted, _FREE, reason="deleted")
    return [job.seq for job in gone]


@operation
def get_ends(queue_id: int) -> Statements[tuple[End, End] | None]:
    """Return the oldest and the newest message; ``None`` if there are none."""
    ends = [End._make(row) for row in (yield "message_ends", {"queue": queue_id})]
    return (ends[0], ends[1]) if len(ends) == 2 else None


@operation
def get_claim(queue_id: int, claim: int) -> Statements[LiveClaim | None]:
    """Read a live claim with its messages; ``None`` if it is over."""
    held = yield "claim_get", {"queue": queue_id, "claim": claim}
    if not held:
        return None
    messages = [Message._make((seq, *stored, claim, age, seq, name)) for _, _, _, seq, *stored, age, name in held]
    complete = yield from payloads.steps(messages, payloads.ONLY_DATA)
    return LiveClaim._make((claim, *held[0][:3], complete))


@operation
def renew_claim(queue_id: int, claim: int, ttl_ms: int, grace_ms: int | None = None) -> Statements[int]:
    """Set the length of a live claim anew, from now; return how many jobs it still holds, 0 if it is over."""
    length = {"ttl_ms": clamp_lease(ttl_ms), "grace_ms": grace_ms}
    ((holds,),) = yield "claim_renew", {"queue": queue_id, "claim": claim, **length}
    return int(holds)


@operation
def release_claim(queue_id: int, claim: int, *, project: str = "") -> Statements[int]:
    """Give back at once all that a claim still holds; return how many."""
    for node, seqs in (yield "claim_seqs", {"queue": queue_id, "claim": claim}):
        settled = yield from release([Release(seq, claim, 0) for seq in seqs], node, project=project)
        return len(settled.ok)
    return 0

"""Leasing jobs to a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

from ...exceptions import InvalidOption, NotAQueue, QueueNotFound
from .. import arrays, limits, payloads
from ..dead import deadletter
from ..flow.advance import NOTHING, Advanced, advance_steps, return_steps
from ..operation import BEGIN, LOOK, Statements, only, operation
from ..rows import LeasedJob
from .floor import NO_FLOORS, TURNS, ClaimCursor, QueueLook
from .settle import MAX_CLAIM_BYTES, load_steps
from .sweep import recover_steps

MAX_QUEUES = 100
#: Tags of one claim call: as many jobs as the claim takes are looked at of each.
MAX_TAGS = 20
#: Statements of each duty that one claim call runs for all: with a million jobs due at midnight the first claimer must
#: not wait until every one of them is ready.
ROUNDS = 10

#: As long as a queue's coalescing window can be, and longer.
MAX_JITTER_MS = 2**31 - 1


@dataclass(slots=True)
class ClaimProgress:
    """What a claim call has so far."""

    jobs: list[LeasedJob] = field(default_factory=list)
    #: Jobs met that used up their deliveries.
    exhausted: int = 0
    #: Jobs that the call has dead-lettered, or removed at the end of their time.
    aside: int = 0
    #: Jobs were left for a suspect or for their size: more are ready, the answer stays short.
    cut: bool = False
    #: Turns of limits and workflows are due after the last look: more than one claim takes, or another has them.
    turns: bool = False
    #: The turns that were taken.
    advanced: Advanced = NOTHING
    #: Bytes of the payloads of the jobs that were counted.
    _bytes: int = 0
    _counted: int = 0

    def room(self) -> int:
        """Return the bytes of payload that still fit into the answer."""
        new, self._counted = self.jobs[self._counted :], len(self.jobs)
        self._bytes += sum(_bytes(job.data_json) + _bytes(job.meta_json) + len(job.body or b"") for job in new)
        return MAX_CLAIM_BYTES - self._bytes


def _bytes(text: str | None) -> int:
    return 0 if text is None else len(text) if text.isascii() else len(text.encode())


@dataclass(slots=True)
class ClaimCall:
    """The arguments of a claim; see ``claim``."""

    names: Sequence[str]
    #: Parameters of the look at the queues, and of the statements that take jobs.
    place: Mapping[str, object]
    params: Mapping[str, Any]
    size: int
    starts: int | None
    others: bool
    most: Mapping[str, int] | None
    cursor: ClaimCursor | None


class ClaimOptions(TypedDict, total=False):
    """Options of a claim."""

    #: How many of the jobs start at once: no more come whose limit has a rate, and these come first, whatever else
    #: waits, since permits do not keep. By default all start at once, and each comes in its order.
    starts: int | None
    #: Whether any come but those.
    others: bool
    #: By name, how many jobs of a queue come at most; any number of a queue that it does not name.
    most: Mapping[str, int] | None
    #: ``None`` for the queue's.
    lease_ms: int | None
    #: How long a message with a TTL outlives the lease at least.
    grace_ms: int | None
    #: Only jobs with this tag, or with one of these.
    tag: str | None
    tags: Sequence[str] | None
    #: ``channel`` or ``channel:mark`` of a stream: what it holds is released when it drops; the channel is notified
    #: when another session settles one of its jobs.
    connection: str | None
    #: Where a busy claimer left off.
    cursor: ClaimCursor | None
    #: Gets how many jobs the call has dead-lettered or removed.
    aside: list[int] | None
    #: Nothing of queues with ``claim_jitter_ms``, whose jobs are dealt to all who ask in that window.
    skip_coalesced: bool
    #: A job whose lease expired comes with no other, for it may kill its process.
    alone: bool
    #: Whether a missing queue is an error.
    strict: bool
    #: Whether payloads that stand in a storage come along (``load_steps``); else ``LeasedJob.loaded`` gets them.
    load: bool


@operation
def claim(
    queues: str | Sequence[str], node: str, size: int = 1, *, project: str = "", **options: Unpack[ClaimOptions]
) -> Statements[list[LeasedJob]]:
    """Lease up to ``size`` ready jobs to ``node``, of one queue or of several in order of preference.

    In order of the queues given, then rank (priority), then position; jobs whose lease expired come again in their old
    place (or at the back, option ``requeue``) before any sweep ran. Jobs that used up their deliveries are moved aside
    and the claim goes on, so a batch never shrinks because of them. The payloads are at most 16 MiB together.
    """
    wanted = (
        [queues] if isinstance(queues, str) else limits.check_list(queues, "what to claim from, the names of queues,")
    )
    limits.check_place(project, *wanted)
    names = list(dict.fromkeys(wanted))
    if not names or len(names) > MAX_QUEUES:
        raise InvalidOption(f"a claim names 1 to {MAX_QUEUES} queues; there are {len(names)}.")
    return (yield from claim_steps(names, limits.check_node(node), size, project, **options))


def claim_steps(
    names: Sequence[str],
    node: str,
    size: int,
    project: str,
    *,
    starts: int | None = None,
    others: bool = True,
    most: Mapping[str, int] | None = None,
    lease_ms: int | None = None,
    grace_ms: int | None = None,
    tag: str | None = None,
    tags: Sequence[str] | None = None,
    connection: str | None = None,
    cursor: ClaimCursor | None = None,
    aside: list[int] | None = None,
    skip_coalesced: bool = False,
    alone: bool = False,
    strict: bool = True,
    load: bool = True,
) -> Statements[list[LeasedJob]]:
    """Claim with names that were checked before; see ``claim``."""
    size = limits.check_count(size, "the number of jobs to claim", limits.MAX_BATCH)
    if connection is not None:
        limits.check_text(connection, "connection", limits.MAX_KEY_BYTES)
        # Settling such a job notifies this channel: a name that PostgreSQL refuses would refuse the ack.
        limits.check_text(connection.partition(":")[0], "the channel of connection", limits.MAX_CHANNEL_BYTES)
    params = {
        "tags": None if tag is None and tags is None else _check_tags(tag, tags),
        "node": node,
        "lease_ms": None if lease_ms is None else limits.clamp_lease(lease_ms),
        "grace_ms": 0 if grace_ms is None else limits.clamp(grace_ms, "grace_ms", 0, limits.MAX_LEASE_MS),
        "connection": connection,
        "suspect_alone": alone,
    }
    place = {"project": project, "queues": arrays.texts(names), "jitter": 0 if skip_coalesced else MAX_JITTER_MS}
    if not size:
        return []
    call = ClaimCall(names, place, params, size, starts, others, most, cursor)
    found = ClaimProgress()
    if cursor is not None:
        cursor.begin()
    jobs, looks = yield from _claim(call, found)
    if cursor is not None:
        cursor.end()
    if aside is not None:
        aside.append(found.aside)
    if load and payloads.any_large(jobs):
        return (yield from load_steps(jobs, node, project))
    if strict and not jobs and len(names) == 1:
        if not looks:
            raise QueueNotFound(names[0], project)
        if looks[0].type != "queue":
            raise NotAQueue(names[0])
    return jobs


def _check_tags(tag: str | None, tags: Sequence[str] | None) -> str:
    if tag is not None and tags is not None:
        raise InvalidOption("a claim names one tag or several tags, not both.")
    if tags is None:
        return arrays.texts([limits.check_text(tag, "tag", limits.MAX_TAG_BYTES)])
    checked = (limits.check_text(one, "each of tags", limits.MAX_TAG_BYTES) for one in limits.check_list(tags, "tags"))
    wanted = list(dict.fromkeys(checked))
    if not 1 <= len(wanted) <= MAX_TAGS:
        raise InvalidOption(f"a claim names 1 to {MAX_TAGS} tags, or leaves tags out; there are {len(wanted)}.")
    return arrays.texts(wanted)


def _claim(call: ClaimCall, found: ClaimProgress) -> Statements[tuple[list[LeasedJob], Sequence[QueueLook]]]:
    """Claim where the cursor left off, then look for more if needed; return the jobs and the last look."""
    names, size, cursor = call.names, call.size, call.cursor
    looks: Sequence[QueueLook] = ()
    if cursor is not None and call.others:
        looks = cursor.looks(names)
        if not looks:
            yield from _take(cursor.hint(names), call, found)
            if found.jobs:
                cursor.cut = True
                cursor.took(found.jobs)
                return found.jobs, looks
        yield from _take(looks, call, found)
    short = len(found.jobs) < size and not found.cut
    if short:
        looks = yield from _look(call)
        due = any(look.due for look in looks)
        if not due and call.others:
            yield from _take(looks, call, found)
        if not found.cut and (found.exhausted or due):
            again = call if cursor is not None else replace(call, cursor=ClaimCursor())
            yield from _recover_overdue(looks, again, found)
            yield from return_steps(found.advanced.rated, found.jobs)
    if cursor is not None:
        cursor.admitted_at = found.advanced.asked_at
    if cursor is not None and call.others:
        cursor.cut = found.cut or (found.turns and found.advanced.turns > 0)
        cursor.turns = found.turns
        cursor.note(names, looks, found.jobs, full=len(found.jobs) == size, looked=short)
    return found.jobs, looks


def _look(call: ClaimCall) -> Statements[list[QueueLook]]:
    cursor = call.cursor
    known = NO_FLOORS if cursor is None else cursor.floors.parameters()
    rows = yield "claim_look", {**call.place, **known, LOOK: True}
    looks = [QueueLook._make(row) for row in rows]
    if unnoted := [look.queue_id for look in looks if look.unnoted]:
        yield "claim_note", {"queues": arrays.integers(unnoted), LOOK: True}  # it may be done again
    if cursor is not None:
        cursor.saw(call.names, looks)
    return looks


def _take(
    looks: Sequence[QueueLook], call: ClaimCall, found: ClaimProgress, admitted: Sequence[int] | None = None
) -> Statements[None]:
    params = call.params
    for look in looks:
        missing = call.size - len(found.jobs)
        if not missing or found.cut:
            return
        if not look.claimable or not (look.has_fresh or look.has_returned or admitted) or look.slots == 0:
            continue
        if call.most and look.name in call.most:
            missing = min(missing, call.most[look.name] - sum(job.queue == look.name for job in found.jobs))
            if missing <= 0:
                continue
        if look.slots is not None:
            # Claimers of a queue that has a limit take turns.
            yield BEGIN, {}
            yield "slots_lock", {"queue": look.queue_id}
            free: int | None = only((yield "slots_free", {"queue": look.queue_id}))
            missing = missing if free is None else min(missing, free)
            if missing <= 0:
                continue
        room = found.room() if found.jobs else MAX_CLAIM_BYTES
        where = {
            "queue": look.queue_id,
            "ranks": arrays.integers(look.ranks),
            "lows": arrays.integers(look.lows),
            "size": missing,
            "slots": look.slots is not None,
        }
        # ``claim`` takes no large job, and counts no bytes.
        some = admitted is not None or params["tags"] is not None
        mixed = look.has_returned or some or room < missing * limits.LARGE_BYTES
        if not mixed:
            rows = yield "claim", {**params, **where}
            if rows:
                mixed, first, *_ = rows[0]
                if first is not None:
                    found.jobs.extend(LeasedJob._make(row[1:]) for row in rows)
        if mixed:
            seqs = None if admitted is None else arrays.integers(admitted)
            rows = yield "claim_mixed", {**params, **where, "admitted": seqs, "bytes": room, "first": not found.jobs}
            if rows:
                exhausted, cut, first, *_ = rows[0]
                found.exhausted += exhausted
                found.cut = found.cut or cut
                if first is not None:
                    found.jobs.extend(LeasedJob._make(row[2:]) for row in rows)


def _take_admitted(looks: Sequence[QueueLook], call: ClaimCall, found: ClaimProgress) -> Statements[None]:
    """Take the jobs that this transaction has admitted for their rate, before any other."""
    rated = found.advanced.rated
    queues = {*rated.values()}
    yield from _take([look for look in looks if look.queue_id in queues], call, found, list(rated))
    if found.exhausted:  # or the next claim would admit the same jobs again
        yield from deadletter.spent_steps(sorted(queues))


def _recover_overdue(looks: Sequence[QueueLook], call: ClaimCall, found: ClaimProgress) -> Statements[None]:
    """Recover expired and due jobs, dead-letter exhausted ones, and claim the missing number.

    Each round removes at least one obstacle or ends; the bound only keeps a claimer from working for all others.
    """
    for turn in range(20):
        if call.others and not turn:
            found.aside += yield from recover_steps({look.queue_id: look.due for look in looks}, ROUNDS)
        # Once: the locks are taken in one order, and kept until the jobs are claimed.
        ids = [] if found.advanced.turns else [look.queue_id for look in looks if look.due & TURNS]
        if ids:
            left = call.size - len(found.jobs)
            found.advanced = yield from advance_steps(ids, left if call.starts is None else min(call.starts, left))
        if found.exhausted:
            found.aside += yield from deadletter.spent_steps([look.queue_id for look in looks], call.params["tags"])
        if len(found.jobs) == call.size:
            return
        if ids and call.starts is not None and found.advanced.rated:
            yield from _take_admitted(looks, call, found)
            # They must start within milliseconds: what else there is comes with the next claim.
            found.cut = True
            return
        if not call.others:
            return
        looks = yield from _look(call)
        before, found.exhausted = len(found.jobs), 0
        yield from _take(looks, call, found)
        found.turns = any(look.due & TURNS for look in looks)
        # Turns that another claimer has are its own to bring to an end; it wakes others for what it sets free.
        more = found.turns and not found.advanced.turns and not ids
        if found.cut or len(found.jobs) == call.size or not (found.exhausted or len(found.jobs) > before or more):
            return

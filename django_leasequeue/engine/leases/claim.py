"""Leasing jobs to a node."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...exceptions import (
    InvalidOption,
    LargePayloadLost,
    LargeStorageError,
    LeaseQueueError,
    NotAQueue,
    PayloadAway,
    QueueNotFound,
)
from .. import arrays, limits, payloads
from ..dead import deadletter
from ..flow.advance import NOTHING, Advanced, advance_steps, return_steps
from ..operation import BEGIN, Steps, only, operation
from ..rows import Failure, LeasedJob, Release
from . import sweep
from .floor import DELAYED, EXPIRED, LEASES, NO_FLOORS, TURNS, ClaimCursor, QueueLook
from .settle import release

logger = logging.getLogger("django_leasequeue")

MAX_QUEUES = 100
#: Tags of one claim call: as many jobs as the claim takes are looked at of each.
MAX_TAGS = 20
#: Statements of each duty that one claim call runs for all: with a million jobs due at midnight the first claimer must
#: not wait until every one of them is ready.
ROUNDS = 10

#: Bytes of payload in one answer; the first job always fits.
MAX_CLAIM_BYTES = 16 * 1024 * 1024

#: As long as a queue's coalescing window can be, and longer.
MAX_JITTER_MS = 2**31 - 1

#: The type and the fingerprint of the failure of an attempt whose payload was lost.
_LOST = f"{LargePayloadLost.__module__}.{LargePayloadLost.__qualname__}"


@dataclass(slots=True)
class ClaimProgress:
    """What a claim call has so far."""

    jobs: list[LeasedJob] = field(default_factory=list)
    #: Jobs met that used up their deliveries.
    spent: int = 0
    #: Jobs were left for a suspect or for their size: more are ready, the answer stays short.
    cut: bool = False
    #: Turns of limits and workflows are due after the last look: more than one claim takes, or another has them.
    turns: bool = False
    #: The turns that were taken.
    advanced: Advanced = NOTHING
    #: One transaction claims from several queues: it waits for the disk, since the leases of one of them may have to.
    shared: bool = False


def claim_steps(
    queues: str | Sequence[str],
    node: str,
    size: int = 1,
    *,
    starts: int | None = None,
    project: str = "",
    lease_ms: int | None = None,
    grace_ms: int | None = None,
    tag: str | None = None,
    tags: Sequence[str] | None = None,
    connection: str | None = None,
    cursor: ClaimCursor | None = None,
    skip_coalesced: bool = False,
    alone: bool = False,
    strict: bool = True,
    load: bool = True,
) -> Steps[list[LeasedJob]]:
    """Lease up to ``size`` ready jobs to ``node``.

    In order of the queues given, then rank (priority), then position; jobs whose lease expired come again in their old
    place (or at the back, option ``requeue``) before any sweep ran. Jobs that used up their deliveries are moved aside
    and the claim goes on, so a batch never shrinks because of them. The payloads are at most 16 MiB together.

    ``queues``: one name, or several in order of preference. ``starts``: how many of the jobs start at once (by default
    all); no more come whose limit has a rate. ``lease_ms``: ``None`` for the queue's. ``grace_ms``: how long a message
    with a TTL outlives the lease at least. ``tag`` or ``tags``: only jobs with one of them. ``connection``: ``channel``
    or ``channel:mark`` of a stream: what it holds is released when it drops; the channel is notified when another
    session settles one of its jobs. ``cursor``: where a busy claimer left off. ``skip_coalesced``: nothing of queues
    with ``claim_jitter_ms``, whose jobs are dealt to all who ask in that window. ``alone``: a job whose lease expired
    comes with no other, for it may kill its process. ``strict``: whether a missing queue is an error. ``load``: whether
    payloads that stand in a storage come along (``load_steps``); else ``LeasedJob.loaded`` gets them.
    """
    wanted = (
        [queues] if isinstance(queues, str) else limits.check_list(queues, "what to claim from, the names of queues,")
    )
    limits.check_place(project, *wanted)
    names = list(dict.fromkeys(wanted))
    if not names or len(names) > MAX_QUEUES:
        raise InvalidOption(f"a claim names 1 to {MAX_QUEUES} queues; there are {len(names)}.")
    size = limits.check_count(size, "the number of jobs to claim", limits.MAX_BATCH)
    if connection is not None:
        limits.check_text(connection, "connection", limits.MAX_KEY_BYTES)
        # Settling such a job notifies this channel: a name that PostgreSQL refuses would refuse the ack.
        limits.check_text(connection.partition(":")[0], "the channel of connection", limits.MAX_CHANNEL_BYTES)
    params = {
        "tags": None if tag is None and tags is None else _check_tags(tag, tags),
        "node": limits.check_node(node),
        "lease_ms": limits.clamp_lease(lease_ms),
        "grace_ms": 0 if grace_ms is None else limits.clamp(grace_ms, "grace_ms", 0, limits.MAX_LEASE_MS),
        "connection": connection,
        "alone": alone,
        "bytes": MAX_CLAIM_BYTES,
    }
    place = {"project": project, "queues": arrays.texts(names), "jitter": 0 if skip_coalesced else MAX_JITTER_MS}
    if not size:
        return []
    jobs, looks = yield from _claim(names, place, params, size, cursor, size if starts is None else starts)
    if load and payloads.any_large(jobs):
        return (yield from load_steps(jobs, node, project))
    if strict and not jobs and len(names) == 1:
        if not looks:
            raise QueueNotFound(names[0], project)
        if looks[0].type != "queue":
            raise NotAQueue(names[0])
    return jobs


claim = operation(claim_steps)


def load_steps(jobs: Sequence[LeasedJob], node: str, project: str) -> Steps[list[LeasedJob]]:
    """Steps that return leased jobs with the payloads that stand in a storage, 16 MiB of these at most.

    What is beyond that goes back at once, and what stands in a storage that is away after 10 s: neither counts
    as a delivery. A payload that is lost is the failure of its job's attempt.
    """
    count = payloads.fitting(jobs, MAX_CLAIM_BYTES)
    back = [Release(job.seq, job.token, 0) for job in jobs[count:]]
    failed: list[Release] = []
    loaded: list[LeasedJob] = []
    away: LeaseQueueError | None = None
    for job, found in zip(jobs, (yield from payloads.try_steps(jobs[:count])), strict=False):
        if isinstance(found, LargePayloadLost):
            failed.append(Release(job.seq, job.token, failure=Failure(_LOST, str(found), fingerprint=_LOST)))
        elif isinstance(found, LeaseQueueError):
            away = found
            back.append(Release(job.seq, job.token, PayloadAway.back_after_ms))
        else:
            loaded.append(found)
    if back:
        yield from release(back, node, project=project, unstarted=True)
    if failed:
        yield from release(failed, node, project=project)
    if away is not None and not loaded:
        raise LargeStorageError(str(away), away)
    return loaded


@operation
def load_hands(
    hands: Sequence[Sequence[LeasedJob]], nodes: Sequence[str], *, project: str = ""
) -> Steps[list[list[LeasedJob]]]:
    """Return the jobs of several claimers with the payloads that stand in a storage; see ``load_steps``."""
    loaded: list[list[LeasedJob]] = []
    for jobs, node in zip(hands, nodes, strict=True):
        try:
            loaded.append((yield from load_steps(jobs, node, project)) if payloads.any_large(jobs) else list(jobs))
        except LargeStorageError as error:
            logger.warning("Jobs went back, their payloads cannot be read: %s", error)
            loaded.append([])
    return loaded


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


def _claim(
    names: Sequence[str],
    place: Mapping[str, object],
    params: Mapping[str, object],
    size: int,
    cursor: ClaimCursor | None,
    starts: int,
) -> Steps[tuple[list[LeasedJob], Sequence[QueueLook]]]:
    """Claim where the cursor left off, then look for more if needed; return the jobs and the last look."""
    found = ClaimProgress()
    looks: Sequence[QueueLook] = ()
    if cursor is not None:
        looks = cursor.looks(names)
        if not looks:
            yield from _take(cursor.hint(names), params, size, found)
            if found.jobs:
                cursor.cut = True
                cursor.took(found.jobs)
                return found.jobs, looks
        yield from _take(looks, params, size, found)
    short = len(found.jobs) < size and not found.cut
    if short:
        looks = yield from _look(place, cursor)
        due = any(look.due for look in looks)
        if not due:
            yield from _take(looks, params, size, found)
        if not found.cut and (found.spent or due):
            yield from _recover_overdue(looks, place, params, size, found, cursor or ClaimCursor(), starts)
            yield from return_steps(found.advanced.rated, found.jobs)
    if cursor is not None:
        cursor.cut = found.cut or (found.turns and found.advanced.turns > 0)
        cursor.turns = found.turns
        cursor.admitted_at = found.advanced.asked_at
        cursor.note(names, looks, found.jobs, full=len(found.jobs) == size, fresh=short)
    return found.jobs, looks


def _look(place: Mapping[str, object], cursor: ClaimCursor | None) -> Steps[list[QueueLook]]:
    rows = yield "claim_look", {**place, **(NO_FLOORS if cursor is None else cursor.floors.parameters())}
    looks = [QueueLook._make(row) for row in rows]
    if cursor is not None and looks:
        cursor.floors.note(looks)
    return looks


def _take(looks: Sequence[QueueLook], params: Mapping[str, object], size: int, found: ClaimProgress) -> Steps[None]:
    for look in looks:
        missing = size - len(found.jobs)
        if not missing or found.cut:
            return
        if not look.gives or not (look.fresh or look.again) or look.slots == 0:
            continue
        if look.slots is not None:
            found.shared = len(looks) > 1
            # Claimers of a queue that has a limit take turns.
            yield BEGIN, {}
            yield "slots_lock", {"queue": look.queue_id}
            free: int | None = only((yield "slots_free", {"queue": look.queue_id}))
            missing = missing if free is None else min(missing, free)
            if missing <= 0:
                continue
        where = {
            "queue": look.queue_id,
            "ranks": arrays.integers(look.ranks),
            "lows": arrays.integers(look.lows),
            "size": missing,
            "slots": look.slots is not None,
            **({"autocommit": False} if found.shared else {}),
        }
        mixed = look.again or params["tags"] is not None
        if not mixed:
            rows = yield "claim", {**params, **where}
            if rows:
                mixed, first, *_ = rows[0]
                if first is not None:
                    found.jobs.extend(LeasedJob._make(row[1:]) for row in rows)
        if mixed:
            rows = yield "claim_mixed", {**params, **where}
            if rows:
                spent, cut, first, *_ = rows[0]
                found.spent += spent
                found.cut = found.cut or cut
                if first is not None:
                    found.jobs.extend(LeasedJob._make(row[2:]) for row in rows)


def _recover_overdue(
    looks: Sequence[QueueLook],
    place: Mapping[str, object],
    params: Mapping[str, Any],
    size: int,
    found: ClaimProgress,
    cursor: ClaimCursor,
    starts: int,
) -> Steps[None]:
    """Bring back what expired or is due, move aside what is used up, and claim what is missing.

    Each round removes at least one obstacle or ends; the bound only keeps a claimer from working for all others.
    """
    for turn in range(20):
        for flag, bring in ((LEASES, sweep.sweep), (DELAYED, sweep.promote), (EXPIRED, sweep.expire)):
            ids = [look.queue_id for look in looks if look.due & flag]
            if ids and not turn:
                yield from bring(ids, ROUNDS)
        # Once: the locks are taken in one order, and kept until the jobs are claimed.
        ids = [] if found.advanced.turns else [look.queue_id for look in looks if look.due & TURNS]
        if ids:
            found.advanced = yield from advance_steps(ids, min(starts, size - len(found.jobs)))
            found.shared = len(looks) > 1
        if found.spent:
            yield from deadletter.spent_steps([look.queue_id for look in looks], params["tags"])
        if len(found.jobs) == size:
            return
        looks = yield from _look(place, cursor)
        before, found.spent = len(found.jobs), 0
        yield from _take(looks, params, size, found)
        found.turns = any(look.due & TURNS for look in looks)
        # Turns that another claimer has are its own to bring to an end; it wakes others for what it sets free.
        more = found.turns and not found.advanced.turns and not ids
        if found.cut or len(found.jobs) == size or not (found.spent or len(found.jobs) > before or more):
            return

"""Leases and time: until when one stands; bringing back expired ones, due delayed jobs, messages past their TTL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

from ...enums import JobState
from ...words import MOVE
from .. import arrays
from ..dead.deadletter import announce_dead, retire_home_steps
from ..jobs.remove import remove_steps
from ..limits import MAX_BATCH, MAX_SPAN_MS, check_count, check_ids, check_integer, check_place
from ..operation import Statements, announce, operation
from ..queues.queues import require
from ..rows import Swept
from .floor import DELAYED, EXPIRED, LEASES

#: Claims (sweep) or jobs (promote, expire) of one queue in one statement.
BATCH = 1_000
CLAIMS = 200
#: Jobs of expired claims in one statement: a claim may hold 1,000.
CLAIMED_JOBS = 5_000
MAX_RESULTS = 10_000

_DEAD = JobState.DEAD.label

#: Seconds before the end of a lease at which it counts as over, so that its worker has stopped when another one begins:
#: at most so many, and of a short lease such a part. (A second is promised; the rest is for a machine that is busy.)
NOTICE, PART = 1.5, 0.25


def surely_until(asked: float, lease: float) -> float:
    """Return the monotonic time until which a lease is surely held."""
    return asked + lease - min(NOTICE, PART * lease)


class Standing(NamedTuple):
    """A lease that stands: the seconds until its deadline, and whether its workflow is being cancelled."""

    seconds: float
    cancelled: bool


@operation
def still_held(leases: Mapping[int, int]) -> Statements[dict[int, Standing]]:
    """Return those leases (token by seq) that still stand."""
    rows = yield "work_held", {"seqs": arrays.integers(leases), "claims": arrays.integers(set(leases.values()))}
    return {seq: Standing(seconds, cancelled) for seq, token, seconds, cancelled in rows if leases[seq] == token}


@operation
def next_due(queue_id: int) -> Statements[float | None]:
    """Return the seconds until a queue has a delayed job that is due or a lease that expires, ``None`` for never."""
    ((seconds,),) = yield "work_due", {"queue": queue_id}
    return None if seconds is None else float(seconds)


@operation
def sweep(queue_ids: Sequence[int], rounds: int | None = None) -> Statements[list[Swept]]:
    """Bring back the expired leases of these queues (by id), all or those of so many batches; return the jobs."""
    queues = arrays.integers(check_ids(queue_ids))
    swept: list[Swept] = []
    for _ in count() if rounds is None else range(rounds):
        rows = yield "sweep", {"queues": queues, "size": CLAIMS, "jobs": CLAIMED_JOBS}
        claims_cleared, _, claims_read, *_ = rows[0]
        done: list[Swept] = []
        used_up: dict[int, dict[int, Swept]] = {}
        for seq, queue_id, outcome, key, name, node, deliveries, _ in rows[1:]:
            state = _DEAD if outcome == MOVE else JobState(outcome).label
            job = Swept(seq, queue_id, state, key, name, node, deliveries)
            if outcome == MOVE:
                used_up.setdefault(queue_id, {})[seq] = job
            else:
                done.append(job)
        for job in done:
            yield from _announce(job)
            if job.state == _DEAD:
                yield from announce_dead(job.queue_id, None, job.seq, job.key, job.name, job.deliveries)
        for queue_id, jobs in used_up.items():
            for seq in (yield from retire_home_steps(queue_id, list(jobs))):
                done.append(jobs[seq])
                yield from _announce(jobs[seq])
        swept += done
        # Claims whose jobs were all finished count as well: behind them there may be one whose worker died.
        if claims_read < CLAIMS or not (claims_cleared or done):
            break
    return swept


def _announce(job: Swept) -> Statements[None]:
    told = job._asdict()
    yield from announce("stalled", queue=told.pop("queue_id"), project=None, **told)


@operation
def promote(queue_ids: Sequence[int], rounds: int | None = None) -> Statements[int]:
    """Make the due delayed jobs of these queues ready, all or so many batches; return how many."""
    queues = arrays.integers(check_ids(queue_ids))
    total = 0
    for _ in count() if rounds is None else range(rounds):
        rows = yield "promote", {"queues": queues, "size": BATCH}
        total += len(rows)
        if len(rows) < BATCH:
            break
    return total


@operation
def expire(queue_ids: Sequence[int], rounds: int | None = None) -> Statements[int]:
    """Remove messages, records and dead jobs past their time, all or so many batches; return how many."""
    queues = arrays.integers(check_ids(queue_ids))
    total = 0
    for _ in count() if rounds is None else range(rounds):
        rows = yield "expire", {"queues": queues, "size": BATCH}
        gone = 0
        for queue_id, dead, seqs in rows:
            places = [JobState.DEAD] if dead else [JobState.READY, JobState.DELAYED, JobState.RECORD]
            gap = None if dead else "ttl"
            gone += len((yield from remove_steps(queue_id, seqs, places, reason="ttl", expired=True, gap=gap)))
        total += gone
        if not gone:
            break
    return total


def recover_steps(due: Mapping[int, int], rounds: int | None = None) -> Statements[int]:
    """Bring back what is due in queues (the flags of a look, by id); return how many jobs have gone."""

    def where(flag: int) -> list[int]:
        return [queue_id for queue_id, flags in due.items() if flags & flag]

    gone = 0
    if leased := where(LEASES):
        gone += sum(job.state == _DEAD for job in (yield from sweep(leased, rounds)))
    if delayed := where(DELAYED):
        yield from promote(delayed, rounds)
    if expired := where(EXPIRED):
        gone += yield from expire(expired, rounds)
    return gone


@operation
def expire_results(size: int = 1_000) -> Statements[int]:
    """Remove at most ``size`` results whose time is over; return how many."""
    rows = yield "expire_results", {"size": check_count(size, "size", MAX_RESULTS, 1)}
    return len(rows)


@operation
def requeue_stale(queue: str, idle_ms: int, *, project: str = "") -> Statements[int]:
    """Bring back the jobs of a queue whose leases have expired or were not renewed for ``idle_ms``."""
    check_place(project, queue)
    check_integer(idle_ms, "idle_ms", 0, MAX_SPAN_MS)
    info = yield from require(project, queue)
    back = 0
    while True:
        rows = yield "overdue", {"queue": info.id, "idle": idle_ms, "size": MAX_BATCH}
        back += len((yield from sweep([info.id])))
        if len(rows) < MAX_BATCH:
            return back

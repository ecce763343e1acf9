"""Bringing back what time has changed: expired leases, due delayed jobs, messages past their TTL."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from ...enums import JobState
from .. import arrays
from ..dead.deadletter import announce_dead, retire_home_steps
from ..jobs.remove import remove_steps
from ..limits import MAX_BATCH, MAX_SPAN_MS, check_count, check_ids, check_integer, check_place
from ..operation import Steps, announce, operation
from ..queues.queues import require
from ..rows import Swept

#: Claims (sweep) or jobs (promote, expire) of one queue in one statement.
BATCH = 1_000
CLAIMS = 200
#: Jobs of expired claims in one statement: a claim may hold 1,000.
CLAIMED_JOBS = 5_000
#: Results removed by one call.
MAX_RESULTS = 10_000

_MOVE = -1
_DEAD = JobState.DEAD.label


class _Back(NamedTuple):
    """A row of ``sweep``: a job whose lease is over, and what became of it (a ``JobState``, or ``_MOVE``)."""

    seq: int
    queue_id: int
    outcome: int
    key: str | None
    name: str | None
    node: str | None
    deliveries: int
    told: object


@operation
def sweep(queue_ids: Sequence[int], rounds: int | None = None) -> Steps[list[Swept]]:
    """Bring back the expired leases of these queues (by id), all or those of so many batches.

    Return the jobs: state ``ready``, or ``dead`` where deliveries end (in place, or moved to the dead-letter topic).
    """
    queues = arrays.integers(check_ids(queue_ids))
    swept: list[Swept] = []
    for _ in count() if rounds is None else range(rounds):
        rows = yield "sweep", {"queues": queues, "size": CLAIMS, "jobs": CLAIMED_JOBS}
        claims_cleared, _, claims_read, *_ = rows[0]
        done: list[Swept] = []
        used_up: dict[int, dict[int, Swept]] = {}
        for back in map(_Back._make, rows[1:]):
            state = _DEAD if back.outcome == _MOVE else JobState(back.outcome).label
            job = Swept(back.seq, back.queue_id, state, back.key, back.name, back.node, back.deliveries)
            if back.outcome == _MOVE:
                used_up.setdefault(job.queue_id, {})[job.seq] = job
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


def _announce(job: Swept) -> Steps[None]:
    yield from announce(
        "stalled",
        queue=job.queue_id,
        project=None,
        seq=job.seq,
        key=job.key,
        name=job.name,
        node=job.node,
        deliveries=job.deliveries,
        state=job.state,
    )


@operation
def promote(queue_ids: Sequence[int], rounds: int | None = None) -> Steps[int]:
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
def expire(queue_ids: Sequence[int], rounds: int | None = None) -> Steps[int]:
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


@operation
def expire_results(size: int = 1_000) -> Steps[int]:
    """Remove at most ``size`` results whose time is over; return how many."""
    rows = yield "expire_results", {"size": check_count(size, "size", MAX_RESULTS, 1)}
    return len(rows)


@operation
def requeue_stale(queue: str, idle_ms: int, *, project: str = "") -> Steps[int]:
    """Bring back the jobs of a queue whose leases have expired or were not renewed for ``idle_ms``.

    When a lease was renewed last is told from its deadline and its own length.
    """
    check_place(project, queue)
    check_integer(idle_ms, "idle_ms", 0, MAX_SPAN_MS)
    info = yield from require(project, queue)
    back = 0
    while True:
        rows = yield "overdue", {"queue": info.id, "idle": idle_ms, "size": MAX_BATCH}
        back += len((yield from sweep([info.id])))
        if len(rows) < MAX_BATCH:
            return back

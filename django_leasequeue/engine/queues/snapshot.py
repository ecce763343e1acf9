"""A snapshot of a queue at one instant: what is next, and what is in progress."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ... import conf
from ...enums import JobState
from ..limits import check_count, check_place
from ..operation import Steps, operation
from .queues import require


class Waiting(NamedTuple):
    """A job in a snapshot of a queue. ``node`` and all behind it are set where it is leased.

    ``renewed_at`` is when its lease was taken or renewed last.
    """

    seq: int
    key: str | None
    name: str | None
    created_at: datetime
    deliveries: int
    node: str | None
    claim: int | None
    deadline: datetime | None
    renewed_at: datetime | None


class QueueState(NamedTuple):
    """A snapshot of a queue at one instant: what is next, in order, and what is in progress, the first to end in front.

    ``version`` grows with every transaction that ends in the database server, and with what the caller's own open
    transaction changes: two snapshots with the same version are the same, as far as time alone changes nothing.
    ``oldest_at`` is when the oldest of the ready jobs shown was made; ``more`` is whether there are jobs of either kind
    beyond those shown.
    """

    version: int
    at: datetime
    ready: list[Waiting]
    in_progress: list[Waiting]
    oldest_at: datetime | None
    more: bool


@operation
def state(queue: str, *, project: str = "", size: int = 100) -> Steps[QueueState]:
    """Return a snapshot of a queue, cheap and without locks: what is next, and what is in progress.

    Args:
        queue: name of the queue.
        project: the tenant.
        size: jobs of each kind, at most ``MAX_PAGE``. For how many there are, see ``counts``.

    Raises:
        QueueNotFound: there is no such queue.
    """
    check_place(project, queue)
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    rows = yield "queue_state", {"project": project, "queue": queue, "size": size + 1}
    # The first row has the version in place of a job's number, and the time of the look.
    (_, head), *jobs = [(state, Waiting(*job)) for state, *job, _ in rows]
    if not jobs:
        yield from require(project, queue, leases=False)
    ready = [job for state, job in jobs if state == JobState.READY]
    leased = [job for state, job in jobs if state == JobState.LEASED]
    more = len(ready) > size or len(leased) > size
    del ready[size:], leased[size:]
    oldest_at = min((job.created_at for job in ready), default=None)
    return QueueState(head.seq, head.created_at, ready, leased, oldest_at, more)

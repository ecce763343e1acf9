"""The lease that the id of a job stands for."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

from ..conf import process
from ..engine import clock
from ..engine.jobs.results import Status
from ..engine.rows import LeasedJob
from ..queue import outcomes as leases
from ..queue.queue import Queue
from .jqueue_values import JobId

K = TypeVar("K")

#: Leases that a queue object remembers, and that all of a process remember together.
MAX_REMEMBERED = 10_000

_of_process: OrderedDict[tuple[str, str, str, str], leases.ClaimedJob] = OrderedDict()
process.when_forgetting(_of_process.clear)


class Leases:
    """The leases that one queue object has taken, by the job's id: the newest of each job.

    They are kept when they are over: whoever had a job and lost it must not end the delivery of another worker, also
    when it names the job by an id as plain text. Where the object has none of a job, the newest one of the process
    counts.

    Args:
        queue: whose jobs.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._own: OrderedDict[str, leases.ClaimedJob] = OrderedDict()

    def _key(self, job_id: str) -> tuple[str, str, str, str]:
        return self._queue.using, self._queue.project, self._queue.name, job_id

    def taken(self, job: leases.ClaimedJob) -> JobId:
        """Note the lease of a job that was dequeued; return its id, which knows the lease."""
        lease = lean(job)
        _keep(self._own, job.id, lease)
        _keep(_of_process, self._key(job.id), lease)
        return JobId(job.id, lease)

    def find(self, job_id: str) -> leases.ClaimedJob | None:
        """Return the lease that an id stands for, ``None`` if whoever gives the id never had the job."""
        known = getattr(job_id, "lease", None)
        if known is not None:
            return known if isinstance(known, leases.ClaimedJob) else None
        return self._own.get(job_id) or _of_process.get(self._key(job_id))

    def ended(self, job_id: str) -> None:
        """Forget a job that is gone."""
        self._own.pop(job_id, None)
        _of_process.pop(self._key(job_id), None)


def _keep(memory: OrderedDict[K, leases.ClaimedJob], key: K, lease: leases.ClaimedJob) -> None:
    memory.pop(key, None)
    memory[key] = lease
    if len(memory) > MAX_REMEMBERED:
        memory.popitem(last=False)


def lean(job: leases.ClaimedJob) -> leases.ClaimedJob:
    """Return a lease without what was enqueued: ids are kept, copied and sent."""
    row = job.lease._replace(data_json=None, meta_json=None, body=None, errors_json=None, progress_json=None)
    return leases.ClaimedJob(row, job.node, asked=job.asked)


def lease_of(row: Status, queue: str) -> leases.ClaimedJob | None:
    """Return the lease that somebody has of a job, ``None`` if nobody has; ``claimed_at`` is the present time."""
    if row.claim is None or row.deadline is None or row.node is None or row.ended:
        return None
    now = clock.now()
    lease = LeasedJob(
        seq=row.seq,
        queue_id=row.queue_id,
        queue=queue,
        token=row.claim,
        deadline_epoch=row.deadline.timestamp(),
        created_epoch=row.created_at.timestamp(),
        claimed_epoch=now.timestamp(),
        deliveries=row.deliveries,
        max_deliveries=row.max_deliveries or 0,
        rank=0,
        key=row.key,
        name=row.name,
        tag=None,
        data_json=None,
        meta_json=None,
        body=None,
        reply_to=None,
        errors_json=None,
        first_claimed_epoch=now.timestamp(),
        progress_json=None,
        position=0,
    )
    return leases.ClaimedJob(lease, row.node)

"""Ending leases before their deadline, where the holder has not renewed them for some time."""

from __future__ import annotations

from ..limits import MAX_BATCH, MAX_SPAN_MS, check_integer, check_place
from ..operation import Steps, operation
from ..queues.queues import require
from .sweep import sweep_steps


@operation
def requeue_stale(queue: str, idle_ms: int, *, project: str = "") -> Steps[int]:
    """Bring back the jobs of a queue whose leases have expired or were not renewed for ``idle_ms``.

    When a lease was renewed last is told from its deadline and its own length.

    Args:
        queue: name of the queue.
        idle_ms: milliseconds without a renewal.
        project: the tenant.

    Returns:
        How many jobs came back (ready again, or dead where deliveries end at release).

    Raises:
        QueueNotFound, NotAQueue, InvalidOption: nothing was changed.
    """
    check_place(project, queue)
    check_integer(idle_ms, "idle_ms", 0, MAX_SPAN_MS)
    info = yield from require(project, queue)
    back = 0
    while True:
        rows = yield "overdue", {"queue": info.id, "idle": idle_ms, "size": MAX_BATCH}
        back += len((yield from sweep_steps([info.id])))
        if len(rows) < MAX_BATCH:
            return back

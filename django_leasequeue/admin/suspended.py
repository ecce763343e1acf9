"""The jobs that sleep, and those that wait for an event."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest

from ..engine.cursors import decode_cursor, encode_cursor
from ..engine.dead.search import from_micros, micros
from ..engine.operation import Steps, operation
from ..models import Queue
from . import reading

#: The words of the list for them.
SLEEPING, WAITING = SUSPENDED = ("sleeping", "waiting for an event")
#: Steps that one page looks at.
LOOK = 500


class SuspendedJob(NamedTuple):
    """A job that sleeps or waits: since when, in which step, for which event (of which project), until when."""

    seq: int
    since: datetime
    step: str
    event: str | None
    of: str | None
    until: datetime | None
    suspended: bool
    queue_id: int | None
    project: str | None
    queue: str | None
    name: str | None
    key: str | None


@operation
def read_suspended(waits: bool, after: str | None) -> Steps[tuple[list[SuspendedJob], str | None]]:
    """Read a page of the jobs that sleep, the longest first, or that wait, by their events; and the next one's cursor.

    Raises:
        InvalidOption: the cursor is not one.
    """
    at, event, project, seq = decode_cursor(after, (int, str, str, int)) or (0, "", "", 0)
    place = {"at": from_micros(at), "event": event, "project": project, "seq": seq}
    found = [SuspendedJob._make(row) for row in (yield "admin/suspended", {**place, "waits": waits, "size": LOOK})]
    more = None
    if len(found) == LOOK:
        last = found[-1]
        more = encode_cursor(micros(last.since), last.event or "", last.of or "", last.seq)
    return [job for job in found if job.suspended], more


def page_of(request: HttpRequest, queue: Queue | None, state: str) -> dict[str, Any]:
    """Return what the list shows of the jobs in one of these states, of a queue and a task if they are named."""
    jobs, after = reading.read(read_suspended(state == WAITING, request.GET.get("after")))
    task = request.GET.get("task", "").strip()
    base = {"queue": request.GET.get("queue", ""), "state": state, "task": task}
    return {
        "state": state,
        "suspended": [
            job for job in jobs if (queue is None or job.queue_id == queue.pk) and (not task or job.name == task)
        ],
        "first": f"?{urlencode(base)}" if request.GET.get("after") else None,
        "next": f"?{urlencode({**base, 'after': after})}" if after else None,
    }

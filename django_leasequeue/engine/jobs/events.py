"""Events that jobs wait for: emitted once, kept for those that wait later."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ... import conf
from ...exceptions import InvalidOption, PayloadTooLarge
from .. import codec
from ..leases.sweep import promote_steps
from ..limits import MAX_SPAN_MS, check_integer, check_text, seconds_of
from ..operation import Steps, operation

#: Bytes of an event's name.
MAX_EVENT_NAME = 512
#: Jobs that one event wakes at once; the reaper wakes the others.
MAX_WOKEN = 10_000
#: Names that begin so are ours; the end of a job, of a workflow.
RESERVED, ENDED, WORKFLOW_ENDED = "$", "$result:", "$workflow:"
ENDED_KEPT_MS = 60_000
#: For how long an event is kept.
RETENTION = timedelta(days=7)


def check_event_name(name: Any) -> str:
    """Return the name of an event."""
    return check_text(name, "the name of an event", MAX_EVENT_NAME)


def result_event(seq: int) -> str:
    """Return the name of the event that the end of a job is: the reaper emits it where a job waits for it."""
    return f"{ENDED}{seq}"


def workflow_event(uid: str) -> str:
    """Return the name of the event that the end of a workflow is."""
    return f"{WORKFLOW_ENDED}{uid}"


@operation
def emit(name: str, payload: Any = None, *, project: str = "", retention: timedelta | float = RETENTION) -> Steps[bool]:
    """Say that an event has happened: jobs of the project that wait for it go on, and those that will wait for it.

    It is part of the caller's transaction, and until its end no other session can emit an event of this name.
    """
    if check_event_name(name).startswith(RESERVED):
        raise InvalidOption(f"names of events that begin with {RESERVED!r} are reserved; it is {name!r:.80}.")
    text = codec.dumps(payload, "the payload of an event")
    if len(text.encode()) > (limit := conf.settings.MAX_PAYLOAD_BYTES):
        raise PayloadTooLarge(f"the payload of an event is at most {limit} bytes of JSON: keep it elsewhere.")
    keep = check_integer(int(seconds_of(retention, "the retention") * 1_000), "the retention in ms", 1, MAX_SPAN_MS)
    return (yield from emit_steps(project, name, text, keep))


def emit_steps(project: str, name: str, payload: str, keep_ms: int) -> Steps[bool]:
    """Steps that emit an event; the arguments are right."""
    place = {"project": project, "name": name, "payload": payload, "keep": keep_ms, "size": MAX_WOKEN}
    ((first, queues),) = yield "event_emit", place
    if queues:
        yield from promote_steps(sorted(queues), 1)
    return bool(first)


@operation
def emit_end(seq: int, *, project: str = "") -> Steps[bool]:
    """Emit the end of a job: what waits for it, or is about to, goes on before the reaper looks."""
    return (yield from emit_steps(project, result_event(seq), "null", ENDED_KEPT_MS))


@operation
def emit_ended(after: tuple[str, str], size: int) -> Steps[tuple[str, str] | None]:
    """Emit the ends of jobs and workflows that jobs wait for, a batch of them; return where the next one begins."""
    rows = yield "step_results", {"event": after[0], "project": after[1], "size": size}
    for event, project, ended in rows:
        if ended:
            yield from emit_steps(project, event, "null", ENDED_KEPT_MS)
    return (rows[-1][0], rows[-1][1]) if len(rows) == size else None

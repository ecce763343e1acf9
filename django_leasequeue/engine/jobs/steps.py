"""Steps of running jobs: their values are kept, so that a later delivery continues after the last one.

A step may wait for an event, which is emitted once and kept for those that wait later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ... import conf
from ...exceptions import InvalidOption, LeaseLost, NotSerializable, PayloadTooLarge
from .. import arrays, codec, payloads
from ..leases.settle import release
from ..leases.sweep import promote
from ..limits import MAX_KEPT_NAME_BYTES, MAX_SPAN_MS, MAX_STEP_NAME, MAX_STEPS, check_integer, check_text, seconds_of
from ..operation import BEGIN, Statements, only, operation
from ..payloads import Content, large_parts, link_steps, put_steps, result_limit
from ..rows import Release
from ..store import Reference
from .read import MAX_PAGE_BYTES

#: Deliveries in which a job may undo its steps, beyond those that it has for the task itself.
UNDO_DELIVERIES = 10
#: Where a step's value stands in its row.
VALUE = payloads.Columns("value", None)


def event_step(event: str) -> str:
    """Return the name of the step that waits for an event."""
    shown = f"event {event}".replace("#", "%23")
    return shown if len(shown) <= MAX_STEP_NAME else f"event {hashlib.sha256(event.encode()).hexdigest()}"


class KeptStep(NamedTuple):
    """A step: its value as JSON text or a reference (``load_step``), "" while it waits; its place in their order."""

    name: str
    value: str
    number: int
    #: How it is undone: the import path of a function, and ``atomic`` behind it.
    undo: str | None = None

    @property
    def waited(self) -> bool:
        """Whether it was a sleep or a wait: PostgreSQL wrote its value, with spaces that ours never have."""
        return not self.value or self.value.startswith('{"event" : ')


def step_text(name: str, value: Any) -> str:
    """Return the value of a step as JSON text."""
    try:
        text = codec.dumps(value, f"what the step {name!r} returned")
    except InvalidOption as error:
        wrong = codec.find_unwritable(value)
        raise NotSerializable(
            f"{error}" if wrong is None else f"the step {name!r} returned {wrong}: return JSON."
        ) from error
    if len(text.encode()) > (limit := result_limit()):
        raise PayloadTooLarge(
            f"the step {name!r} returned more than {limit} bytes of JSON: keep it elsewhere and return a reference."
        )
    return text


@operation
def read_steps(seq: int) -> Statements[dict[str, KeptStep]]:
    """Read the steps of a job by name."""
    rows = yield "step_list", {"seq": seq, "size": MAX_STEPS}
    return {name: KeptStep(name, value or "", *rest) for name, value, *rest in rows}


@operation
def load_step(step: KeptStep) -> Statements[str]:
    """Return the value of a step as JSON text, from the storage of large payloads if it is there."""
    (loaded,) = yield from payloads.steps([step], VALUE)
    return loaded.value


@operation
def keep_step(
    seq: int,
    token: int,
    node: str,
    name: str,
    value: str,
    delivery: int,
    number: int,
    *,
    locks: bool = True,
    undo: str | None = None,
    opens: bool = False,
) -> Statements[tuple[bool, bool, str | None]]:
    """Keep the value of a step, in the caller's transaction if there is one.

    Returns whether the lease is held, whether the step is kept, and the mark of the transaction.
    ``locks``: only the transaction itself can end the job before it commits. ``opens``: it is the job's first step with
    ``undo``.
    """
    place = {"seq": seq, "token": token, "node": node}
    contents = {seq: Content(value, None)}
    references: dict[int, Reference] = {}
    if parts := large_parts(contents):
        references = yield from put_steps(contents, parts)
        value = references[seq].text()
    if parts or undo is not None:  # who takes the job out waits for the commit, and then knows of it
        yield BEGIN, {}
    kept = {**place, "name": name, "number": number, "value": value, "delivery": delivery, "locks": locks, "undo": undo}
    if rows := (yield "step_put", kept):
        yield from link_steps(references)
        if opens:
            yield "undo_open", {"seq": seq, "more": UNDO_DELIVERIES, "delivery": delivery}
        return True, True, only(rows)
    return bool((yield "step_held", place)), False, None


class Waited(NamedTuple):
    """What became of a sleep or a wait: ``value`` (JSON text) when it is over, else ``left_ms`` are left."""

    value: str | None
    left_ms: int


@operation
def wait_step(
    seq: int,
    token: int,
    node: str,
    name: str,
    delivery: int,
    number: int,
    *,
    event: str | None = None,
    delay_ms: int | None = None,
    until: datetime | None = None,
) -> Statements[Waited | None]:
    """Keep until when a step sleeps or waits, unless that is kept already."""
    place = {"seq": seq, "token": token, "node": node, "name": name, "number": number, "delivery": delivery}
    rows = yield "step_wait", {**place, "event": event, "until": until, "delay": delay_ms}
    if not rows:
        return None
    ((value, left, *_),) = rows
    return Waited(value, left or 0)


@operation
def forget_wait(seq: int, name: str) -> Statements[None]:
    """Forget an open wait whose outcome is recorded as a step."""
    yield "wait_forget", {"seq": seq, "name": name}


@operation
def rouse_job(seq: int) -> Statements[list[tuple[str, str | None]]]:
    """End the sleep or the wait of a suspended job now, as if its time had come; it is ready."""
    yield BEGIN, {}
    queues = yield "run_now", {"seq": seq}
    if not queues:
        return []
    over = yield "step_rouse", {"seq": seq}
    yield from promote(sorted(queue for (queue,) in queues), 1)
    return [(name, event) for name, event in over]


@operation
def forget_steps(after: int, size: int) -> Statements[int | None]:
    """Remove the steps of jobs that are gone among ``size`` steps behind ``after``; return where to go on."""
    ((last, _),) = yield "step_forget", {"after": after, "size": size}
    return None if last is None else int(last)


@operation
def wake_waiting(seqs: Sequence[int]) -> Statements[None]:
    """Make jobs due whose event was emitted while they went to wait for it."""
    queues = [queue for (queue,) in (yield "step_wake", {"seqs": arrays.integers(seqs)})]
    if queues:
        yield from promote(sorted(queues), 1)


MAX_EVENT_NAME = 512
#: Jobs that one event wakes at once; the reaper wakes the others.
MAX_WOKEN = 10_000
#: Names that begin so are ours; the end of a job, of a workflow.
RESERVED, ENDED, WORKFLOW_ENDED = "$", "$result:", "$workflow:"
ENDED_KEPT_MS = 60_000
#: For how long an event is kept.
RETENTION = timedelta(days=7)


def check_event_name(name: Any) -> str:
    """Return the name of an event that callers may emit or wait for: not one of ours."""
    if check_text(name, "the name of an event", MAX_EVENT_NAME).startswith(RESERVED):
        raise InvalidOption(f"the name of an event must not begin with {RESERVED!r}; it is {name!r:.80}.")
    return str(name)


def result_event(seq: int) -> str:
    """Return the name of the event that the end of a job is: the reaper emits it where a job waits for it."""
    return f"{ENDED}{seq}"


def workflow_event(uid: str) -> str:
    """Return the name of the event that the end of a workflow is."""
    return f"{WORKFLOW_ENDED}{uid}"


@operation
def emit(
    name: str, payload: Any = None, *, project: str = "", retention: timedelta | float = RETENTION
) -> Statements[bool]:
    """Emit an event: jobs of the project that wait for it, now or later, go on.

    It is part of the caller's transaction, and until its end no other session can emit an event of this name.
    """
    check_event_name(name)
    text = codec.dumps(payload, "the payload of an event")
    if len(text.encode()) > (limit := conf.settings.MAX_PAYLOAD_BYTES):
        raise PayloadTooLarge(f"the payload of an event is at most {limit} bytes of JSON: keep it elsewhere.")
    keep = _RETENTION_MS if retention is RETENTION else _kept_ms(retention)
    return (yield from _emit(project, name, text, keep))


def _kept_ms(retention: timedelta | float) -> int:
    return check_integer(int(seconds_of(retention, "the retention") * 1_000), "the retention in ms", 1, MAX_SPAN_MS)


_RETENTION_MS = _kept_ms(RETENTION)


def _emit(project: str, name: str, payload: str, keep_ms: int) -> Statements[bool]:
    place = {"project": project, "name": name, "payload": payload, "keep": keep_ms, "size": MAX_WOKEN}
    ((queues,),) = yield "event_emit", place
    if queues:
        yield from promote(sorted(queues), 1)
    return queues is not None


@operation
def emit_end(event: str, *, project: str = "") -> Statements[bool]:
    """Emit the end of a job or workflow: jobs that wait for it go on before the reaper looks."""
    return (yield from _emit(project, event, "null", ENDED_KEPT_MS))


@operation
def emit_ended(after: tuple[str, str], size: int) -> Statements[tuple[str, str] | None]:
    """Emit the ends of jobs and workflows that jobs wait for, a batch of them; return where the next one begins."""
    rows = yield "step_results", {"event": after[0], "project": after[1], "size": size}
    for event, project, ended in rows:
        if ended:
            yield from emit_end(event, project=project)
    return (rows[-1][0], rows[-1][1]) if len(rows) == size else None


MAX_STEP_PAGE = 1_000
_NAME = re.compile(rf"[^#]{{1,{MAX_STEP_NAME}}}(#[1-9][0-9]{{0,4}})?\Z", re.DOTALL)


class Lease(NamedTuple):
    """A job as its worker names it: the topic, and the lease that the claim gave."""

    queue: str
    seq: int
    token: int
    node: str
    project: str = ""


class RecordedStep(NamedTuple):
    """The record of a step: its value (JSON text), and whether this call wrote it."""

    value: str
    new: bool


def check_step_name(name: str) -> str:
    """Return the name that a step is kept by: 1 to 200 characters, of a repeated one with its number (``page#2``)."""
    check_text(name, "the name of a step", MAX_KEPT_NAME_BYTES)
    if not _NAME.match(name):
        raise InvalidOption(
            f"the name of a step has 1 to {MAX_STEP_NAME} characters, and '#' only before the number of a repeated one"
            f" (page#2); it is {name!r:.250}."
        )
    return name


def _place(lease: Lease, name: str | None = None) -> Statements[tuple[int, int]]:
    """Return a job's delivery and the number of its next step; there may be no more than ``MAX_STEPS``."""
    rows = yield "step_place", lease._asdict()
    if not rows:
        raise LeaseLost(lease.seq)
    ((delivery, kept, last),) = rows
    if name is not None and kept >= MAX_STEPS and not (yield "step_get", {"seq": lease.seq, "name": name}):
        raise InvalidOption(f"a job has at most {MAX_STEPS} steps: do more in each, or enqueue jobs for them.")
    return delivery, last + 1


@operation
def step_page(lease: Lease, after: int) -> Statements[tuple[Sequence[KeptStep], int | None]]:
    """Read the steps of a leased job that are done, a page of them in their order."""
    yield from _place(lease)
    rows = yield "step_page", {"seq": lease.seq, "after": after, "size": MAX_STEP_PAGE, "bytes": MAX_PAGE_BYTES}
    found = [KeptStep._make(row) for row in rows]
    whole = yield from payloads.page_steps(found, MAX_PAGE_BYTES, VALUE)
    if not whole:
        return [], None
    last = whole[-1].number
    return whole, last if (yield "step_page", {"seq": lease.seq, "after": last, "size": 1, "bytes": 0}) else None


@operation
def record_step(lease: Lease, name: str, value: str) -> Statements[RecordedStep]:
    """Keep the value of a leased job's step, unless one is kept already."""
    check_step_name(name)
    place = yield from _place(lease, name)
    held, new, _ = yield from keep_step(lease.seq, lease.token, lease.node, name, value, *place)
    if not held:
        raise LeaseLost(lease.seq)
    if new:
        return RecordedStep(value, True)
    ((_, first, number),) = yield "step_get", {"seq": lease.seq, "name": name}
    if first is None:
        raise InvalidOption(f"the step {name!r} of the job is a sleep or a wait: a step needs another name.")
    return RecordedStep((yield from load_step(KeptStep(name, first, number))), False)


@operation
def suspend_job(
    lease: Lease, name: str, *, event: str | None = None, delay_ms: int | None = None, until: datetime | None = None
) -> Statements[Waited]:
    """Give a leased job back until a time or an event; after the commit of a wait call ``wake_waiting``."""
    check_step_name(name)
    yield BEGIN, {}
    place = yield from _place(lease, name)
    times: dict[str, Any] = {"event": event, "delay_ms": delay_ms, "until": until}
    waited = yield from wait_step(lease.seq, lease.token, lease.node, name, *place, **times)
    if waited is None:
        raise LeaseLost(lease.seq)
    if waited.value is None:
        back = [Release(lease.seq, lease.token, max(waited.left_ms, 0))]
        settled = yield from release(back, lease.node, project=lease.project, queue=lease.queue, suspended=True)
        if lease.seq not in settled.released:
            raise LeaseLost(lease.seq)
    return waited

"""Steps of jobs whose workers are named by their leases: the HTTP door. Nothing is known here of the run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ...exceptions import InvalidOption, LeaseLost
from ..large import reading
from ..leases.settle import release
from ..limits import MAX_KEPT_NAME_BYTES, MAX_STEP_NAME, MAX_STEPS, check_text
from ..operation import BEGIN, Steps, operation
from ..rows import Release
from .read import MAX_PAGE_BYTES
from .steps import VALUE, KeptStep, Waited, keep_step, load_step, wait_step

#: Steps of one page.
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


class _Place(NamedTuple):
    """A row of ``step_place``."""

    delivery: int
    kept: int
    last: int


def check_step_name(name: str) -> str:
    """Return the name that a step is kept by: 1 to 200 characters, of a repeated one with its number (``page#2``)."""
    check_text(name, "the name of a step", MAX_KEPT_NAME_BYTES)
    if not _NAME.match(name):
        raise InvalidOption(
            f"the name of a step has 1 to {MAX_STEP_NAME} characters, and '#' only before the number of a repeated one"
            f" (page#2); it is {name!r:.250}."
        )
    return name


def _place(lease: Lease) -> Steps[_Place]:
    rows = yield "step_place", lease._asdict()
    if not rows:
        raise LeaseLost(lease.seq)
    return _Place._make(rows[0])


def _new_place(lease: Lease, name: str) -> Steps[_Place]:
    """Return the place for a step; there may be no more than ``MAX_STEPS``."""
    place = yield from _place(lease)
    if place.kept >= MAX_STEPS and not (yield "step_get", {"seq": lease.seq, "name": name}):
        raise InvalidOption(f"a job has at most {MAX_STEPS} steps: do more in each, or enqueue jobs for them.")
    return place


@operation
def step_page(lease: Lease, after: int = 0, size: int = MAX_STEP_PAGE) -> Steps[tuple[Sequence[KeptStep], int | None]]:
    """Read the steps of a leased job that are done, a page of them in their order."""
    yield from _place(lease)
    rows = yield "step_page", {"seq": lease.seq, "after": after, "size": size, "bytes": MAX_PAGE_BYTES}
    found = [KeptStep._make(row) for row in rows]
    whole = yield from reading.page_steps(found, MAX_PAGE_BYTES, VALUE)
    if not whole:
        return [], None
    last = whole[-1].number
    return whole, last if (yield "step_page", {"seq": lease.seq, "after": last, "size": 1, "bytes": 0}) else None


@operation
def record_step(lease: Lease, name: str, value: str) -> Steps[RecordedStep]:
    """Keep what a step of a leased job has returned, unless it is kept already."""
    check_step_name(name)
    place = yield from _new_place(lease, name)
    kept = keep_step(lease.seq, lease.token, lease.node, name, value, place.delivery, place.last + 1)
    held, new = yield from kept
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
    lease: Lease,
    name: str,
    *,
    event: str | None = None,
    delay_ms: int | None = None,
    until: datetime | None = None,
) -> Steps[Waited]:
    """Let a leased job sleep or wait for an event: it is given back, and claimed again when that is over.

    Call ``wake_waiting`` when this has committed and it waits for an event.
    """
    check_step_name(name)
    yield BEGIN, {}
    place = yield from _new_place(lease, name)
    times: dict[str, Any] = {"event": event, "delay_ms": delay_ms, "until": until}
    asked = wait_step(lease.seq, lease.token, lease.node, name, place.delivery, place.last + 1, **times)
    waited = yield from asked
    if waited is None:
        raise LeaseLost(lease.seq)
    if waited.value is None:
        back = [Release(lease.seq, lease.token, max(waited.left_ms, 0))]
        settled = yield from release(back, lease.node, project=lease.project, queue=lease.queue, suspended=True)
        if lease.seq not in settled.released:
            raise LeaseLost(lease.seq)
    return waited

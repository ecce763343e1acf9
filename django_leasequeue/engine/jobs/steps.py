"""Steps of running jobs: what each has returned is kept, so that a later delivery goes on behind it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from .. import arrays
from ..leases.sweep import promote_steps
from ..operation import Steps, operation

#: Steps of one job.
MAX_STEPS = 10_000
#: Characters of a step's name.
MAX_STEP_NAME = 200


@operation
def read_steps(seq: int) -> Steps[dict[str, str]]:
    """Read the steps of a job that are done: their values as JSON text, by name."""
    rows = yield "step_list", {"seq": seq, "size": MAX_STEPS}
    return {name: value for name, value in rows if value is not None}


@operation
def keep_step(seq: int, token: int, node: str, name: str, value: str, delivery: int) -> Steps[tuple[bool, bool]]:
    """Keep what a step has returned, in the caller's transaction if there is one.

    Args:
        seq: the job.
        token: its lease.
        node: the holder.
        name: the step.
        value: JSON text.
        delivery: which one of the job did it.

    Returns:
        Whether the lease is held, and whether this call kept it; if not, somebody has before.
    """
    place = {"seq": seq, "token": token, "node": node}
    if (yield "step_put", {**place, "name": name, "value": value, "delivery": delivery}):
        return True, True
    return bool((yield "step_held", place)), False


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
    *,
    event: str | None = None,
    delay_ms: int | None = None,
    until: datetime | None = None,
) -> Steps[Waited | None]:
    """Keep until when a step sleeps or waits, unless that is kept already.

    Args:
        seq: the job.
        token: its lease.
        node: the holder.
        name: the step.
        delivery: which one of the job it is.
        event: what it waits for; ``None`` for a sleep.
        delay_ms: how long it waits at most.
        until: or until when.

    Returns:
        Whether it is over; ``None`` if the lease is not held.
    """
    place = {"seq": seq, "token": token, "node": node, "name": name, "delivery": delivery}
    rows = yield "step_wait", {**place, "event": event, "until": until, "delay": delay_ms}
    if not rows:
        return None
    ((value, left, *_),) = rows
    return Waited(value, left or 0)


@operation
def wake_waiting(seqs: Sequence[int]) -> Steps[None]:
    """Make jobs due whose event was emitted while they went to wait for it."""
    queues = [queue for (queue,) in (yield "step_wake", {"seqs": arrays.integers(seqs)})]
    if queues:
        yield from promote_steps(sorted(queues), 1)

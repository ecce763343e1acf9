"""Steps of running jobs: what each has returned is kept, so that a later delivery goes on behind it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ...exceptions import PayloadTooLarge
from .. import arrays, codec
from ..large import reading
from ..large.reference import Reference
from ..large.writing import Content, large_parts, link_steps, put_steps, result_limit
from ..leases.sweep import promote_steps
from ..limits import MAX_STEP_NAME, MAX_STEPS
from ..operation import BEGIN, Steps, operation

#: Where a step's value stands in its row.
VALUE = reading.Columns("value", None)


def event_step(event: str) -> str:
    """Return the name of the step that waits for an event."""
    shown = f"event {event}".replace("#", "%23")
    return shown if len(shown) <= MAX_STEP_NAME else f"event {hashlib.sha256(event.encode()).hexdigest()}"


class KeptStep(NamedTuple):
    """A step: its value as JSON text or a reference (``load_step``), "" while it waits; its place in their order."""

    name: str
    value: str
    number: int

    @property
    def waited(self) -> bool:
        """Whether it was a sleep or a wait: PostgreSQL wrote its value, with spaces that ours never have."""
        return not self.value or self.value.startswith('{"event" : ')


def step_text(name: str, value: Any) -> str:
    """Return what a step has returned as JSON text."""
    text = codec.dumps(value, f"what the step {name!r} returned")
    if len(text.encode()) > (limit := result_limit()):
        raise PayloadTooLarge(
            f"the step {name!r} returned more than {limit} bytes of JSON: keep it elsewhere and return a reference."
        )
    return text


@operation
def read_steps(seq: int) -> Steps[dict[str, KeptStep]]:
    """Read the steps of a job by name."""
    rows = yield "step_list", {"seq": seq, "size": MAX_STEPS}
    return {name: KeptStep(name, value or "", number) for name, value, number in rows}


@operation
def load_step(step: KeptStep) -> Steps[str]:
    """Return the value of a step as JSON text, from the storage of large payloads if it is there."""
    (loaded,) = yield from reading.steps([step], VALUE)
    return loaded.value


@operation
def keep_step(
    seq: int, token: int, node: str, name: str, value: str, delivery: int, number: int
) -> Steps[tuple[bool, bool]]:
    """Keep what a step has returned, in the caller's transaction if there is one."""
    place = {"seq": seq, "token": token, "node": node}
    contents = {seq: Content(value, None)}
    references: dict[int, Reference] = {}
    if parts := large_parts(contents):
        references = yield from put_steps(contents, parts)
        value = references[seq].text()
        yield BEGIN, {}
    kept = {**place, "name": name, "number": number, "value": value, "delivery": delivery}
    if (yield "step_put", kept):
        yield from link_steps(references)
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
    number: int,
    *,
    event: str | None = None,
    delay_ms: int | None = None,
    until: datetime | None = None,
) -> Steps[Waited | None]:
    """Keep until when a step sleeps or waits, unless that is kept already."""
    place = {"seq": seq, "token": token, "node": node, "name": name, "number": number, "delivery": delivery}
    rows = yield "step_wait", {**place, "event": event, "until": until, "delay": delay_ms}
    if not rows:
        return None
    ((value, left, *_),) = rows
    return Waited(value, left or 0)


@operation
def rouse_job(seq: int) -> Steps[list[tuple[str, str | None]]]:
    """End the sleep or the wait of a suspended job now, as if its time had come; it is ready."""
    yield BEGIN, {}
    queues = yield "run_now", {"seq": seq}
    if not queues:
        return []
    over = yield "step_rouse", {"seq": seq}
    yield from promote_steps(sorted(queue for (queue,) in queues), 1)
    return [(name, event) for name, event in over]


@operation
def forget_steps(after: int, size: int) -> Steps[int | None]:
    """Remove the steps of jobs that are gone among ``size`` steps behind ``after``; return where to go on."""
    ((last, _),) = yield "step_forget", {"after": after, "size": size}
    return None if last is None else int(last)


@operation
def wake_waiting(seqs: Sequence[int]) -> Steps[None]:
    """Make jobs due whose event was emitted while they went to wait for it."""
    queues = [queue for (queue,) in (yield "step_wake", {"seqs": arrays.integers(seqs)})]
    if queues:
        yield from promote_steps(sorted(queues), 1)

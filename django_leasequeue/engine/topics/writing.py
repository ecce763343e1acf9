"""Writing to a topic: the first write makes it, and a keyed write is done once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...exceptions import LeaseQueueError, QueueNotFound
from .. import arrays
from ..jobs.enqueue import enqueue
from ..limits import MAX_KEY_BYTES, check_text
from ..operation import BEGIN, Steps, operation
from ..queues.presets import Definition, define
from ..queues.queues import make
from ..rows import NewJob
from .topics import look_steps


class Written(NamedTuple):
    """The outcome of a write. ``deduped``: its key was used before, ``seqs`` are the first write's."""

    seqs: list[int]
    created: bool
    deduped: bool


@operation
def write(
    topic: str,
    jobs: Sequence[NewJob],
    *,
    project: str = "",
    key: str | None = None,
    create: Mapping[str, Any] | None = None,
) -> Steps[Written]:
    """Append records to a topic, all or none."""
    if key is not None:
        check_text(key, "the idempotency key", MAX_KEY_BYTES)
    created = False
    try:
        seqs, deduped = yield from _append(topic, jobs, project, key)
    except QueueNotFound:
        if create is None:
            raise
        found = define(project, topic, Definition("topics", create))
        created = yield from make(project, topic, found.preset, found.options)
        seqs, deduped = yield from _append(topic, jobs, project, key)
    return Written(seqs, created, deduped)


def _append(topic: str, jobs: Sequence[NewJob], project: str, key: str | None) -> Steps[tuple[list[int], bool]]:
    found = (yield from look_steps(project, topic)) if key is not None else None
    if key is None or found is None or not found.idempotency_window_ms:
        return (yield from _enqueue(topic, jobs, project)), False
    yield BEGIN, {}
    for _ in range(5):
        params = {"queue": found.id, "key": key}
        taken = yield "idempotency_take", {**params, "window_ms": found.idempotency_window_ms}
        if taken:
            seqs = yield from _enqueue(topic, jobs, project)
            yield "idempotency_keep", {**params, "seqs": arrays.integers(seqs)}
            return seqs, False
        for (seqs,) in (yield "idempotency_find", params):
            return list(seqs), True
    raise LeaseQueueError("The idempotency key was taken and freed again five times in a row; try the call again.")


def _enqueue(topic: str, jobs: Sequence[NewJob], project: str) -> Steps[list[int]]:
    answers = yield from enqueue(topic, jobs, project=project, create=False)
    return [answer.seq for answer in answers]

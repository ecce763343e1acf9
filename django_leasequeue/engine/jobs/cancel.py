"""Cancelling jobs by name. One that has steps to undo is due in place of removed: its worker undoes them first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...enums import JobState
from ...exceptions import BatchTooLarge
from .. import arrays, limits
from ..leases.settle import release
from ..leases.sweep import promote
from ..operation import BEGIN, Statements, announce, operation
from ..rows import Release
from .remove import cancel_replacements, remove_steps


@operation
def cancel(
    queue: str, *, keys: Sequence[str] = (), seqs: Sequence[int] = (), project: str = "", running: bool = False
) -> Statements[list[tuple[int, str | None]]]:
    """Take out the named jobs that have not started (ready or delayed); with ``running`` those that run, too.

    A claim that runs at the same time wins or loses, never both. Who runs a job that is taken out is told at the
    commit, and nothing that it says of the job counts any more. A job with steps to undo goes when they are undone.
    Return (seq, key) of the jobs that were taken out; what is missing was started, finished or never there.
    """
    limits.check_place(project, queue)
    if len(limits.check_list(keys, "the keys")) > limits.MAX_BATCH:
        raise BatchTooLarge(f"one call cancels at most {limits.MAX_BATCH} jobs; there are {len(keys)}.")
    for key in keys:
        limits.check_text(key, "a key", limits.MAX_KEY_BYTES)
    named = {"keys": arrays.texts(keys), "seqs": arrays.integers(limits.check_seqs(seqs))}
    rows = yield "key_seqs", {"project": project, "queue": queue, **named}
    if not rows:
        return []
    (queue_id, *_), *_ = rows
    undoing = sorted(seq for _, seq, undoes in rows if undoes)
    turned = (yield from _turn(queue_id, project, undoing, running)) if undoing else []
    wanted = sorted(seq for _, seq, undoes in rows if seq is not None and not undoes)
    places = [JobState.READY, JobState.DELAYED, *([JobState.LEASED] if running else [])]
    gone = yield from remove_steps(queue_id, wanted, places)
    if any(job.state == JobState.LEASED for job in gone):
        yield "leases_taken", {"queues": arrays.integers([queue_id])}
    yield from cancel_replacements([job.seq for job in gone])
    for job in gone:
        yield from announce("cancelled", queue=queue, project=project, seq=job.seq, key=job.key, name=job.name)
    return turned + [(job.seq, job.key) for job in gone]


def _turn(queue_id: int, project: str, seqs: Sequence[int], running: bool) -> Statements[list[tuple[int, str | None]]]:
    """Let jobs undo their steps: they are due, and their next delivery does it."""
    yield BEGIN, {}
    jobs: dict[str, Any] = {"queue": queue_id, "seqs": arrays.integers(seqs)}
    held: dict[str, list[Release]] = {}
    for node, token, seq in (yield "undo_leased", jobs) if running else ():
        held.setdefault(node, []).append(Release(seq, token, 0))
    for node, releases in sorted(held.items()):
        yield from release(releases, node, project=project)
    turned = yield "undo_cancel", jobs
    yield from promote([queue_id], 1)
    if held:
        yield "leases_taken", {"queues": arrays.integers([queue_id])}
    return [(seq, key) for seq, key in turned]

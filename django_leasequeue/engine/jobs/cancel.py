"""Cancelling jobs by name, or with their workflow.

One that has steps to undo is due in place of removed: its worker undoes them first. The note of such a job (its step
``$undo``) has its true deliveries, why its steps are undone, and the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ...enums import JobState
from ...exceptions import BatchTooLarge
from .. import arrays, codec, limits
from ..leases.settle import release
from ..leases.sweep import promote
from ..operation import BEGIN, Statements, announce, operation
from ..queues.queues import find
from ..rows import Release
from .remove import remove_steps

#: Where jobs stand that do not run.
_WAITING = (JobState.READY, JobState.DELAYED)


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
    wanted = limits.check_seqs(seqs)
    done: list[tuple[int, str | None]] = []
    for _ in range(3 if running else 1):  # what was claimed meanwhile runs in the next round
        place = {"project": project, "queue": queue, "seqs": arrays.integers(wanted)}
        rows = yield "key_seqs", {**place, "keys": arrays.texts(keys)}
        if not rows or rows[0][1] is None:
            break
        queue_id = rows[0][0]
        held: list[tuple[str, int, int]] = []
        if running:
            yield BEGIN, {}
            # It waits for steps that are being committed: only then it is known what is to be undone.
            held = yield "undo_lock", {"queue": queue_id, "seqs": arrays.integers(seq for _, seq, *_ in rows)}
            if held:
                rows = yield "key_seqs", {**place, "keys": arrays.texts(keys)}
        # Those that undo already go on: a second worker would undo the same beside the first.
        undoing = sorted(seq for _, seq, undoes, begun in rows if undoes and not begun)
        turned = (yield from _turn(queue_id, project, undoing, held)) if undoing else []
        plain = {seq for _, seq, undoes, _ in rows if seq is not None and not undoes}
        leased = plain & {seq for *_, seq in held}
        gone = yield from remove_steps(queue_id, sorted(leased), [JobState.LEASED], undo=True)
        gone += yield from remove_steps(queue_id, sorted(plain - leased), _WAITING, undo=True)
        if held:
            yield "leases_taken", {"queues": arrays.integers([queue_id])}
        yield from cancel_replacements([job.seq for job in gone])
        for job in gone:
            yield from announce("cancelled", queue=queue, project=project, seq=job.seq, key=job.key, name=job.name)
        now = turned + [(job.seq, job.key) for job in gone]
        done += now
        keys, wanted = (), sorted({seq for _, seq, *_ in rows if seq is not None} - {seq for seq, _ in now})
        if not wanted:
            break
    return done


def _turn(
    queue_id: int, project: str, seqs: Sequence[int], held: Sequence[tuple[str, int, int]]
) -> Statements[list[tuple[int, str | None]]]:
    """Let jobs undo their steps: they are due, and their next delivery does it."""
    yield BEGIN, {}
    back: dict[str, list[Release]] = {}
    for node, token, seq in held:
        if seq in seqs:
            back.setdefault(node, []).append(Release(seq, token, 0))
    for node, releases in sorted(back.items()):
        yield from release(releases, node, project=project)
    turned = yield "undo_cancel", {"queue": queue_id, "seqs": arrays.integers(seqs)}
    yield from promote([queue_id], 1)
    return [(seq, key) for seq, key in turned]


def _undo_first(
    queue_id: int, project: str, seqs: Sequence[int], held: Sequence[tuple[str, int, int]] = ()
) -> Statements[tuple[list[int], list[int]]]:
    """Let jobs that have steps to undo do so; return those that begin, and the jobs without such steps."""
    found = yield "undo_find", {"seqs": arrays.integers(seqs)}
    undoing = sorted(seq for seq, begun in found if not begun)
    turned = (yield from _turn(queue_id, project, undoing, held)) if undoing else []
    return [seq for seq, _ in turned], sorted({*seqs} - {seq for seq, _ in found})


@operation
def cancel_workflow(uid: UUID, *, project: str = "") -> Statements[int | None]:
    """Cancel a workflow: waiting jobs are removed; workers stop running ones and start none that they hold.

    What has started is counted as what it becomes; the workflow ends with the last of it. Jobs with steps to undo go
    when they are undone. Return how many waiting jobs were cancelled; ``None`` if it has ended, or there is none.
    """
    yield BEGIN, {}
    rows = yield "workflow_cancel", {"uid": str(uid), "project": project}
    if not rows:
        return None
    count = 0
    for queue_id, seqs in rows:
        turned, removed = yield from cancel_nodes(queue_id, seqs)
        count += len(turned) + removed
    yield "leases_taken", {"queues": arrays.integers(queue_id for queue_id, _ in rows)}
    return count


def cancel_nodes(queue_id: int, seqs: Sequence[int]) -> Statements[tuple[list[int], int]]:
    """Cancel those jobs of a cancelled workflow that wait; return which undo their steps now, and how many are gone."""
    turned, others = yield from _undo_first(queue_id, "", seqs)
    gone = yield from remove_steps(queue_id, others, _WAITING, reason="workflow_cancelled", undo=True)
    yield from cancel_replacements([job.seq for job in gone])
    return turned, len(gone)


def cancel_replacements(seqs: Sequence[int]) -> Statements[None]:
    """Cancel the replacements of removed jobs: nothing waits for them any more."""
    while seqs:
        found = [codec.loads(text) for (text,) in (yield "step_replacements", {"seqs": arrays.integers(seqs)})]
        queues: dict[tuple[str, str], list[int]] = {}
        for replacement in found:
            if "workflow" in replacement:
                yield from cancel_workflow(UUID(replacement["workflow"]), project=replacement["project"])
            elif "seq" in replacement:
                queues.setdefault((replacement["project"], replacement["queue"]), []).append(replacement["seq"])
        seqs = []
        for (project, queue), mine in queues.items():
            if (row := (yield from find(project, queue))) is not None:
                yield BEGIN, {}
                held = yield "undo_lock", {"queue": row.id, "seqs": arrays.integers(mine)}
                _, others = yield from _undo_first(row.id, project, mine, held)
                gone = yield from remove_steps(row.id, others, [*_WAITING, JobState.LEASED], undo=True)
                seqs += [job.seq for job in gone]
                yield "leases_taken", {"queues": arrays.integers([row.id])}


#: The note's name among the steps of its job, and what the names of undone steps begin with.
NOTE = "$undo"
#: Its ``why`` if the job was cancelled; else that is a failure.
CANCELLED = "cancelled"


@operation
def note_undo(
    seq: int,
    token: int,
    node: str,
    change: dict[str, Any],
    *,
    max_deliveries: int | None = None,
    repeats: int | None = None,
) -> Statements[bool]:
    """Note why the steps of a leased job are undone, or that they are; return whether the lease is held.

    ``max_deliveries``: the job has so many from then on. ``repeats``: the end of the job repeats the failure of that
    delivery, which is forgotten.
    """
    noted = {"change": codec.dumps(change), "most": max_deliveries, "repeats": repeats}
    return bool((yield "undo_note", {"seq": seq, "token": token, "node": node, **noted}))


@operation
def forget_undone(seq: int, token: int, node: str) -> Statements[bool]:
    """Forget the undone steps of a leased job, and what was kept after the first of them: they run again."""
    return bool((yield "undo_forget", {"seq": seq, "token": token, "node": node}))

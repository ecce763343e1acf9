"""Taking jobs out: cancel by name, purge in bulk."""

from __future__ import annotations

from collections.abc import Sequence

from ...enums import JobState
from ...exceptions import BatchTooLarge, InvalidOption
from .. import arrays
from ..flow.workflows import cancel_replacements
from ..limits import (
    MAX_BATCH,
    MAX_KEY_BYTES,
    MAX_SEQ,
    MAX_TAG_BYTES,
    check_count,
    check_integer,
    check_list,
    check_place,
    check_seqs,
    check_text,
)
from ..operation import Steps, announce, operation
from ..queues.queues import require
from .remove import remove_steps

_STATES = {state.label: int(state) for state in JobState}


def _number(state: str) -> int:
    if not isinstance(state, str) or state not in _STATES:
        raise InvalidOption(f"a state is one of {', '.join(_STATES)}; it is {state!r}.")
    return _STATES[state]


@operation
def cancel(
    queue: str, *, keys: Sequence[str] = (), seqs: Sequence[int] = (), project: str = "", running: bool = False
) -> Steps[list[tuple[int, str | None]]]:
    """Take out the named jobs that have not started (ready or delayed); with ``running`` those that run, too.

    A claim that runs at the same time wins or loses, never both. Who runs a job that is taken out is told at the
    commit, and nothing that it says of the job counts any more.

    Returns:
        (seq, key) of the jobs that were taken out. What is missing was started, finished or never there.

    Raises:
        BatchTooLarge: more than 1,000 jobs.
    """
    check_place(project, queue)
    if len(check_list(keys, "the keys")) > MAX_BATCH:
        raise BatchTooLarge(f"one call cancels at most {MAX_BATCH} jobs; there are {len(keys)}.")
    for key in keys:
        check_text(key, "a key", MAX_KEY_BYTES)
    wanted = check_seqs(seqs)
    rows = yield "key_seqs", {"project": project, "queue": queue, "keys": arrays.texts(keys)}
    if not rows:
        return []
    (queue_id, _), *_ = rows
    wanted = sorted({*wanted, *(seq for _, seq in rows if seq is not None)})
    places = [JobState.READY, JobState.DELAYED, *([JobState.LEASED] if running else [])]
    gone = yield from remove_steps(queue_id, wanted, places)
    if any(job.state == JobState.LEASED for job in gone):
        yield "leases_taken", {"queues": arrays.integers([queue_id])}
    yield from cancel_replacements([job.seq for job in gone])
    for job in gone:
        yield from announce("cancelled", queue=queue, project=project, seq=job.seq, key=job.key, name=job.name)
    return [(job.seq, job.key) for job in gone]


@operation
def purge(
    queue: str,
    *,
    states: Sequence[str] = ("ready", "delayed"),
    before: int | None = None,
    tag: str | None = None,
    tag_prefix: str | None = None,
    project: str = "",
    size: int = 1_000,
) -> Steps[int]:
    """Remove at most ``size`` jobs of a queue by state, number or tag; call again until it returns 0.

    Args:
        queue: name of the queue.
        states: any of ``ready``, ``delayed``, ``leased``, ``dead``, ``record``.
        before: only jobs with a lower number.
        tag: only jobs with this tag.
        tag_prefix: only jobs whose tag begins so.
        project: the tenant.
        size: jobs of this call.

    Returns:
        How many went.

    Raises:
        QueueNotFound, InvalidOption: nothing was removed.
    """
    numbers = [_number(state) for state in check_list(states, "the states")]
    if tag is not None:
        check_text(tag, "tag", MAX_TAG_BYTES)
    if tag_prefix is not None:
        check_text(tag_prefix, "tag_prefix", MAX_TAG_BYTES)
    if before is not None:
        check_integer(before, "before", 0, MAX_SEQ)
    size = check_count(size, "size", 10_000, 1)
    info = yield from require(project, queue, leases=False)
    rows = yield (
        "purge",
        {
            "queue": info.id,
            "states": arrays.integers(numbers),
            "before": before,
            "tag": tag,
            "tag_prefix": tag_prefix,
            "size": size,
        },
    )
    places = list(dict.fromkeys(numbers))
    return len((yield from remove_steps(info.id, [seq for (seq,) in rows], places, reason="purged")))

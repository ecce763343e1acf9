"""Taking jobs out: cancel before anybody starts them, purge in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..enums import JobState
from ..exceptions import BatchTooLarge, InvalidOption
from . import arrays
from .announce import announce
from .limits import MAX_BATCH, check_count, check_seqs
from .operation import Steps, operation
from .queues import require

_STATES = {state.label: int(state) for state in JobState}


@operation
def cancel(
    queue: str, *, keys: Sequence[str] = (), seqs: Sequence[int] = (), project: str = ""
) -> Steps[list[tuple[int, str | None]]]:
    """Take out the named jobs that nobody has started (ready or delayed).

    A claim that runs at the same time wins or loses, never both.

    Returns:
        (seq, key) of the jobs that were taken out. What is missing was started, finished or never there.

    Raises:
        BatchTooLarge: more than 1,000 jobs.
    """
    if len(keys) > MAX_BATCH:
        raise BatchTooLarge(f"one call cancels at most {MAX_BATCH} jobs; there are {len(keys)}.")
    params = {
        "project": project,
        "queue": queue,
        "keys": arrays.texts(keys),
        "seqs": arrays.integers(check_seqs(seqs)),
    }
    rows = yield "cancel", params
    for seq, key, _ in rows:
        yield from announce("cancelled", queue=queue, project=project, seq=seq, key=key, name=None)
    return [(seq, key) for seq, key, _ in rows]


@operation
def purge(
    queue: str,
    *,
    states: Iterable[str] = ("ready", "delayed"),
    before: int | None = None,
    tag: str | None = None,
    tag_prefix: str | None = None,
    project: str = "",
    size: int = 1_000,
) -> Steps[int]:
    """Remove at most ``size`` jobs of a queue by state, number or tag; call again until it returns 0.

    Args:
        states: any of ``ready``, ``delayed``, ``leased``, ``dead``, ``record``.
        before: only jobs with a lower number.
        tag: only jobs with this tag.
        tag_prefix: only jobs whose tag begins so.

    Returns:
        How many went.

    Raises:
        QueueNotFound, InvalidOption: nothing was removed.
    """
    numbers = []
    for state in states:
        if state not in _STATES:
            raise InvalidOption(f"a state is one of {', '.join(_STATES)}; it is {state!r}.")
        numbers.append(_STATES[state])
    info = yield from require(project, queue, leases=False)
    rows = yield (
        "purge",
        {
            "queue": info.id,
            "states": arrays.integers(numbers),
            "before": before,
            "tag": tag,
            "tag_prefix": tag_prefix,
            "size": check_count(size, "size", 10_000, 1),
        },
    )
    return len(rows)

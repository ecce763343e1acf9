"""Adding jobs that stand in the stage table: Spark's tasks put them there, its driver's commit has them enqueued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...exceptions import LeaseQueueError
from .. import arrays
from ..operation import BEGIN, Rows, Steps, operation
from ..topics import caps
from .enqueue import rows_steps
from .keys import DUPLICATE, holder_steps

#: The columns of lake/stage_jobs after the queue and the ids, as enqueue calls them.
_COLUMNS = (
    "numbers", "keys", "names", "tags", "priorities", "datas", "metas", "bodies", "run_at", "ttls", "reply_to",
    "result_ttls", "max_deliveries",
)  # fmt: skip


@operation
def enqueue_staged(
    parts: Sequence[str], low: int, high: int, *, project: str = "", origin: str | None = None
) -> Steps[int]:
    """Add the jobs of a range of the stage to their queues. A key that is taken adds nothing.

    The rows stay where they are: the caller forgets them with the transaction, or after it.

    Args:
        parts: of the stage.
        low: the number before its first row.
        high: the number of its last row.
        project: the tenant.
        origin: the producing node or client.

    Returns:
        How many were added.

    Raises:
        QueueNotFound: there is no such queue.
        QueueFull: a queue is at its cap and rejects.
    """
    place = {"parts": "{" + ",".join(parts) + "}", "low": low, "high": high}
    rows = yield "lake/stage_jobs", {**place, "ids": None}
    absent = dict.fromkeys(("origins", "delays", "flows", "id_ends"), arrays.EMPTY)
    common = {"project": project, "origin": origin, **absent}
    added = 0
    for row in rows:
        added += yield from _add(row, place, {**common, "queue": row[0]})
    return added


def _add(row: tuple[Any, ...], place: dict[str, Any], common: dict[str, Any]) -> Steps[int]:
    params = {**common, **dict(zip(_COLUMNS, row[2:-1], strict=True)), "locked": False}
    answers = yield from rows_steps(params, create=False)
    capped = answers[0][4]
    if capped is not None:
        yield BEGIN, {}
        yield from caps.lock_steps(capped)
        params["locked"] = True
        answers = yield from rows_steps(params, create=False)
    seqs = yield from _with_freed(row, answers, place, params)
    if capped is not None:
        yield from caps.enforce_steps(capped, seqs)
    return len(seqs)


def _with_freed(row: tuple[Any, ...], answers: Rows, place: dict[str, Any], params: dict[str, Any]) -> Steps[list[int]]:
    """Note where jobs came from; set free keys that need not be held any more, and enqueue those."""
    seqs: list[int] = []
    for _ in range(5):
        if row[-1].strip("{NUL,}"):
            yield "lake/stage_sources", {"seqs": arrays.integers([answer[0] for answer in answers]), "sources": row[-1]}
        seqs += [answer[0] for answer in answers if answer[0] is not None]
        taken = [number for number, answer in zip(row[1], answers, strict=True) if answer[0] is None]
        if not taken:
            return seqs
        (row,) = yield "lake/stage_jobs", {**place, "ids": arrays.integers(taken)}
        params |= dict(zip(_COLUMNS, row[2:-1], strict=True))
        found = yield from holder_steps(params["project"], params["queue"], params["keys"])
        if found and all(holder.verdict == DUPLICATE for holder in found):
            return seqs
        answers = yield from rows_steps(params, create=False)
    raise LeaseQueueError("A key was taken and freed again five times in a row; write again.")

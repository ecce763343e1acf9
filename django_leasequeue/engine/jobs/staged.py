"""Adding jobs that stand in the stage table: Spark's tasks put them there, its driver's commit has them enqueued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...exceptions import LeaseQueueError, QueueNotFound
from .. import arrays
from ..operation import Steps, operation
from .enqueue import EnqueueRow, rows_steps
from .remove import DUPLICATE, enforce_cap, holder_steps

#: Dead letters that one statement takes out.
REPLAYED = 1_000


class Replayed(NamedTuple):
    """A range of the stage that replays dead letters (or jobs that failed for good), which are locked."""

    place: dict[str, Any]
    #: The jobs that have let go of their keys.
    freed: str


@operation
def lock_replayed(
    parts: Sequence[str], low: int, high: int, *, results: bool, project: str = ""
) -> Steps[list[Replayed]]:
    """Lock the dead letters (or failed jobs) that a range of the stage replays, in the caller's transaction."""
    taken = []
    named = "{" + ",".join(parts) + "}"
    for start in range(low, high, REPLAYED):
        until = min(start + REPLAYED, high)
        place = {"parts": named, "low": start, "high": until, "project": project, "results": results}
        found = yield "replay", place
        for seq, homeless, _ in found:
            if homeless:
                raise QueueNotFound(f"the queue that dead letter {seq} came from", project)
        taken.append(Replayed(place, arrays.integers(seq for seq, _, freed in found if freed)))
    return taken


@operation
def remove_replayed(taken: Sequence[Replayed]) -> Steps[None]:
    """Remove what ``lock_replayed`` has locked, once its replays are enqueued."""
    for one in taken:
        yield "replay_done", {**one.place, "freed": one.freed}


class _Staged(NamedTuple):
    """A row of ``stage_jobs``: the staged jobs of a queue; ``numbers`` and all behind it are arrays as text.

    ``sources``: the dead letters that they came from.
    """

    queue: str
    ids: list[int]
    numbers: str
    keys: str
    names: str
    tags: str
    priorities: str
    datas: str
    metas: str
    bodies: str
    run_at: str
    ttls: str
    reply_to: str
    result_ttls: str
    max_deliveries: str
    sources: str

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of enqueue that stand in the stage."""
        named = self._asdict()
        del named["ids"], named["sources"]
        return named


@operation
def enqueue_staged(
    parts: Sequence[str], low: int, high: int, *, project: str = "", origin: str | None = None
) -> Steps[int]:
    """Add the jobs of a range of the stage to their queues. A key that is taken adds nothing.

    The rows stay where they are: the caller forgets them with the transaction, or after it.
    """
    place = {"parts": "{" + ",".join(parts) + "}", "low": low, "high": high}
    rows = yield "stage_jobs", {**place, "ids": None}
    absent = dict.fromkeys(("origins", "delays", "flows", "id_ends", "tagged"), arrays.EMPTY)
    common = {"project": project, "origin": origin, **absent}
    added = 0
    for staged in map(_Staged._make, rows):
        added += yield from _add(staged, place, {**common, **staged.parameters(), "locked": False})
    return added


def _add(staged: _Staged, place: dict[str, Any], params: dict[str, Any]) -> Steps[int]:
    answers, capped = yield from rows_steps(params, create=False)
    seqs = yield from _with_freed(staged, answers, place, params)
    if capped is not None:
        yield from enforce_cap(capped, seqs)
    return len(seqs)


def _with_freed(
    staged: _Staged, answers: Sequence[EnqueueRow], place: dict[str, Any], params: dict[str, Any]
) -> Steps[list[int]]:
    """Note where jobs came from; set free keys that need not be held any more, and enqueue those."""
    seqs: list[int] = []
    for _ in range(5):
        if staged.sources.strip("{NUL,}"):
            numbers = arrays.integers(answer.seq for answer in answers)
            yield "stage_sources", {"seqs": numbers, "sources": staged.sources}
        seqs += [answer.seq for answer in answers if answer.seq is not None]
        taken = [number for number, answer in zip(staged.ids, answers, strict=True) if answer.seq is None]
        if not taken:
            return seqs
        (row,) = yield "stage_jobs", {**place, "ids": arrays.integers(taken)}
        staged = _Staged._make(row)
        params |= staged.parameters()
        found = yield from holder_steps(params["project"], params["queue"], params["keys"])
        if found and all(holder.verdict == DUPLICATE for holder in found):
            return seqs
        answers, _ = yield from rows_steps(params, create=False)
    raise LeaseQueueError("A key was taken and freed again five times in a row; write again.")

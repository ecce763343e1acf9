"""Taking jobs out that used up their deliveries, and bringing dead letters back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..enums import DEAD_LETTER_SELF
from ..exceptions import InvalidOption, QueueNotFound
from . import arrays
from .announce import announce
from .limits import check_list, check_place, check_seqs, clamp_delay
from .operation import Steps, operation
from .queues import find, make, require

#: Jobs looked at in one round.
ROUND = 1_000


def spent_steps(queue_ids: Sequence[int], tag: str | None = None) -> Steps[int]:
    """Steps that move aside the used-up jobs at the head of these queues (or of one tag there); return how many."""
    rows = yield "spent", {"queues": arrays.integers(queue_ids), "size": ROUND, "tag": tag}
    moved = 0
    for queue_id, project, dead_letter, seqs in rows:
        moved += len((yield from retire_steps(queue_id, project, dead_letter, seqs)))
    return moved


def retire_steps(
    queue_id: int,
    project: str,
    dead_letter: str,
    seqs: Sequence[int],
    node: str | None = None,
    claims: Sequence[int] = (),
) -> Steps[list[int]]:
    """Steps that dead-letter these jobs of one queue: in place, or to its dead-letter topic, made as a log if missing.

    They return the seqs of the jobs that went.
    The statement looks again at each job: one that somebody else took meanwhile is left alone, and a move that fails
    loses nothing (spec/topics D1).
    """
    if dead_letter == DEAD_LETTER_SELF:
        rows = yield "bury", {"queue": queue_id, "seqs": arrays.integers(seqs)}
        for seq, key, name, deliveries, _ in rows:
            yield from announce(
                "dead_lettered", queue=queue_id, project=project, seq=seq, key=key, name=name, deliveries=deliveries
            )
        return [row[0] for row in rows]
    target = yield from find(project, dead_letter)
    if target is None:
        yield from make(project, dead_letter, None, {"type": "log"})
        target = yield from require(project, dead_letter, leases=False)
    rows = yield (
        "move",
        {
            "queue": queue_id,
            "target": target.id,
            "seqs": arrays.integers(seqs),
            "node": node,
            "claims": arrays.integers(claims),
        },
    )
    for seq, _, key, name, deliveries, *_ in rows:
        yield from announce(
            "dead_lettered", queue=queue_id, project=project, seq=seq, key=key, name=name, deliveries=deliveries
        )
    return [row[0] for row in rows]


class Redriven(NamedTuple):
    """Where a dead letter went: ``state`` is ``ready``, ``delayed``, ``conflict`` (key taken) or ``not_found``.

    ``new_seq`` is its number in the target queue, the old one if it stayed.
    """

    seq: int
    state: str
    new_seq: int | None


@operation
def redrive(
    queue: str,
    seqs: Sequence[int],
    *,
    to: str | None = None,
    project: str = "",
    delay_ms: int | Sequence[int | None] | None = None,
) -> Steps[list[Redriven]]:
    """Bring dead letters back to a live queue; their deliveries start again at 0, at the back of the queue.

    Args:
        queue: where the dead letters are: their own queue (dead in place) or the dead-letter topic.
        seqs: at most 1,000 numbers.
        to: name of the queue to put them in; ``None`` for their own queue.
        delay_ms: one delay for all, or one per job (a redrive with a rate).

    Returns:
        One answer per seq, in order.

    Raises:
        QueueNotFound, InvalidOption, BatchTooLarge: nothing was redriven.
    """
    check_place(project, queue, to or queue)
    wanted = check_seqs(seqs)
    if delay_ms is None or isinstance(delay_ms, int):
        delays: Sequence[int | None] = [delay_ms] * len(wanted)
    else:
        delays = check_list(delay_ms, "delay_ms")
    if len(delays) != len(wanted):
        raise InvalidOption("delay_ms must be one number, or one per seq.")
    yield from require(project, queue, leases=False)
    target = to or queue
    yield from require(project, target)
    rows = yield (
        "redrive",
        {
            "project": project,
            "queue": queue,
            "target": target,
            "seqs": arrays.integers(wanted),
            "delays": arrays.integers([clamp_delay(delay) or 0 for delay in delays]),
        },
    )
    states = {-1: "conflict", 0: "ready", 1: "delayed"}
    found = {seq: Redriven(seq, states[outcome], new_seq or seq) for seq, outcome, new_seq, _ in rows}
    return [found.get(seq, Redriven(seq, "not_found", None)) for seq in wanted]


@operation
def redrive_home(queue: str, seqs: Sequence[int], *, project: str = "") -> Steps[list[Redriven]]:
    """Bring dead letters of a dead-letter topic back to the queues they came from.

    Raises:
        QueueNotFound: the topic, or a queue that a letter came from, is not there.
    """
    check_place(project, queue)
    wanted = check_seqs(seqs)
    rows = yield "sources", {"project": project, "queue": queue, "seqs": arrays.integers(wanted)}
    homes: dict[str, list[int]] = {}
    for seq, home in rows:
        if home is None:
            raise QueueNotFound(f"the queue that job {seq} came from", project)
        homes.setdefault(home, []).append(seq)
    found: dict[int, Redriven] = {}
    for home, letters in homes.items():
        for answer in (yield from redrive(queue, letters, to=home, project=project).steps()):
            found[answer.seq] = answer
    return [found.get(seq, Redriven(seq, "not_found", None)) for seq in wanted]

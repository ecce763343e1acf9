"""Doing something with dead letters: retry, redrive, discard a batch of them; retry one with other data."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ... import conf
from ...exceptions import InvalidOption, NotAQueue, PayloadTooLarge, QueueNotFound
from .. import arrays, codec
from ..limits import MAX_QUEUE_BYTES, check_place, check_seqs, check_text
from ..operation import BEGIN, Steps, operation
from .deadletter import free_steps, redrive

RETRY, REDRIVE, DISCARD = KINDS = ("retry", "redrive", "discard")

#: Why a letter was left alone, in words.
CONFLICTS: Mapping[str, str] = {
    "gone": "not there any more: retried and done, discarded, or expired",
    "retried": "already retried",
    "died_again": "retried and dead again since then",
    "busy": "in use: a worker holds it, or somebody else is changing it",
    "key_taken": "the target queue has a job with the same key",
    "no_home": "the queue that it came from is gone",
    "no_target": "the target is not there, or is no queue",
    "there_already": "it is in that queue already",
}
MAX_REASON = 2_000


class _Locked(NamedTuple):
    """A row of ``dead_lock``: a letter that is to be changed, or why it cannot be."""

    seq: int
    project: str
    queue: str
    state: int
    home: str | None
    conflict: str | None


class Acted(NamedTuple):
    """What became of some letters: how many were changed, and (seq, why) of those that were left alone."""

    done: int
    conflicts: list[tuple[int, str]]


def act_steps(
    kind: str, seqs: Sequence[int], *, until: datetime | None, to: str | None, reason: str, jitter_ms: int = 0
) -> Steps[Acted]:
    """Steps that retry, redrive or discard these letters; the caller has begun a transaction."""
    found = [_Locked._make(row) for row in (yield "dead_lock", {"seqs": arrays.integers(seqs), "until": until})]
    conflicts = [(letter.seq, letter.conflict) for letter in found if letter.conflict is not None]
    free = [letter for letter in found if letter.conflict is None]
    if kind == DISCARD:
        gone = yield (
            "dead_discard",
            {"seqs": arrays.integers(letter.seq for letter in free), "until": until, "reason": reason},
        )
        left = {letter.seq for letter in free} - {seq for seq, *_ in gone}
        return Acted(len(gone), conflicts + [(seq, "busy") for seq in sorted(left)])
    moves: dict[tuple[str, str, str], list[int]] = {}
    for seq, project, queue, state, home, _ in free:
        target = to if kind == REDRIVE else (queue if state == 3 else home)
        if target is None:
            conflicts.append((seq, "no_home"))
        elif state != 3 and target == queue:
            conflicts.append((seq, "there_already"))
        else:
            moves.setdefault((project, queue, target), []).append(seq)
    done = 0
    for (project, queue, target), letters in moves.items():
        delays = [random.randint(0, jitter_ms) for _ in letters] if jitter_ms else None
        try:
            answers = yield from redrive(queue, letters, to=target, project=project, delay_ms=delays).steps()
        except (QueueNotFound, NotAQueue):
            conflicts += [(seq, "no_target") for seq in letters]
            continue
        for answer in answers:
            if answer.state in ("ready", "delayed"):
                done += 1
            else:
                conflicts.append((answer.seq, "key_taken" if answer.state == "conflict" else "busy"))
    return Acted(done, conflicts)


def check_action(kind: str, to: str | None, reason: str) -> None:
    """Check what is to be done with letters.

    Raises:
        InvalidOption: the kind is none of ``KINDS``, a redrive names no target, or a discard gives no reason.
    """
    if kind not in KINDS:
        raise InvalidOption(f"An action is one of {', '.join(KINDS)}; it is {str(kind)[:40]!r}.")
    if (kind == REDRIVE) != (to is not None):
        raise InvalidOption("A redrive needs the name of the queue to put the jobs in; a retry or a discard has none.")
    if to is not None:
        check_text(to, "the name of the target queue", MAX_QUEUE_BYTES)
    check_text(reason, "the reason", MAX_REASON, 0)
    if kind == DISCARD and not reason.strip():
        raise InvalidOption("A discard needs a reason: what is discarded is gone for good.")


@operation
def act(
    kind: str,
    seqs: Sequence[int],
    *,
    until: datetime | None = None,
    to: str | None = None,
    reason: str = "",
    jitter_ms: int = 0,
) -> Steps[Acted]:
    """Retry, redrive or discard at most 1,000 dead letters at once, in one transaction.

    A letter of a dead-letter topic is retried in the queue that it came from.

    Args:
        kind: ``retry``, ``redrive`` or ``discard``.
        seqs: their numbers.
        until: letters that died later are left alone.
        to: of a redrive, the name of the queue.
        reason: of a discard, why.
        jitter_ms: of a retry or redrive, each job waits a random time up to it.

    Raises:
        InvalidOption, BatchTooLarge: nothing was done.
    """
    check_action(kind, to, reason)
    wanted = check_seqs(seqs)
    yield BEGIN, {}
    return (yield from act_steps(kind, wanted, until=until, to=to, reason=reason, jitter_ms=jitter_ms))


class Edited(NamedTuple):
    """The job that took a dead letter's place; or, with ``seq`` of ``None``, why nothing was done (``CONFLICTS``)."""

    seq: int | None
    queue: str | None
    conflict: str | None


@operation
def edit_and_retry(queue: str, seq: int, *, data: Any, dead_at: datetime, project: str = "") -> Steps[Edited]:
    """Retry one dead letter with other data: a new job takes its place and names it as its source.

    What runs stays as it was: the task's name, the meta and a binary body are those of the letter.

    Args:
        queue: where the letter is.
        seq: its number.
        data: the new payload, a JSON value.
        dead_at: the death that was looked at; another one since then is a conflict.
        project: the tenant.

    Raises:
        PayloadTooLarge: nothing was done.
    """
    check_place(project, queue)
    check_seqs([seq])
    text = codec.dumps(data)
    if len(text.encode()) > conf.settings.MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(f"The data has more than {conf.settings.MAX_PAYLOAD_BYTES} bytes.")
    params = {"project": project, "queue": queue, "seq": seq, "dead_at": dead_at, "data": text}
    gone = (None, None, "gone", None)
    [(new, where, why, key, *_)] = (yield "dead_edit", params) or [gone]
    if why == "key_taken" and (yield from free_steps(project, where, [key])):
        [(new, where, why, *_)] = (yield "dead_edit", params) or [gone]
    return Edited(new, where if new else None, why)

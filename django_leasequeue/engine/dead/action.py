"""Doing something with dead letters: retry, redrive, discard a batch of them; retry one with other data."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ... import conf
from ...enums import JobState
from ...exceptions import InvalidOption, NotAQueue, PayloadTooLarge, QueueNotFound
from .. import arrays, codec, payloads
from ..limits import MAX_KEPT_NAME_BYTES, MAX_QUEUE_BYTES, check_place, check_seqs, check_text
from ..operation import BEGIN, Statements, operation
from ..payloads import Content, large_parts, link_steps, put_steps
from ..store import Reference
from .deadletter import free_steps, redrive
from .search import row_steps

RETRY, REDRIVE, DISCARD = KINDS = ("retry", "redrive", "discard")

#: Reasons for which a dead letter was left alone, in words.
CONFLICTS: Mapping[str, str] = {
    "gone": "not there any more: retried and done, discarded, or expired",
    "retried": "already retried",
    "died_again": "retried and dead again since then",
    "busy": "in use: a worker holds it, or another session is changing it",
    "key_taken": "the target queue has a job with the same key",
    "no_home": "the queue that it came from is gone",
    "no_target": "the target is not there, or is no queue",
    "there_already": "it is in that queue already",
    "no_step": "it has not done the step from which it was to run again",
}
#: The same, by the answers of ``redrive``.
_LEFT_ALONE = {"conflict": "key_taken", "no_step": "no_step"}
MAX_REASON = 2_000


class Acted(NamedTuple):
    """The outcome: how many dead letters were changed, and (seq, why) of each that was skipped."""

    done: int
    conflicts: list[tuple[int, str]]


def act_steps(
    kind: str,
    seqs: Sequence[int],
    until: datetime | None,
    to: str | None,
    reason: str,
    jitter_ms: int,
    from_step: str | None,
) -> Statements[Acted]:
    """Retry, redrive or discard these dead letters; the caller has begun a transaction."""
    locked = yield "dead_lock", {"seqs": arrays.integers(seqs), "until": until}
    conflicts = [(seq, conflict) for seq, *_, conflict in locked if conflict is not None]
    free = [row for row in locked if row[-1] is None]
    if kind == DISCARD:
        seqs = [seq for seq, *_ in free]
        gone = yield "dead_discard", {"seqs": arrays.integers(seqs), "until": until, "reason": reason}
        left = {*seqs} - {seq for (seq, *_) in gone}
        return Acted(len(gone), conflicts + [(seq, "busy") for seq in sorted(left)])
    moves: dict[tuple[str, str, str], list[int]] = {}
    for seq, project, queue, state, home, _ in free:
        in_place = state == JobState.DEAD
        target = to if kind == REDRIVE else (queue if in_place else home)
        if target is None:
            conflicts.append((seq, "no_home"))
        elif not in_place and target == queue:
            conflicts.append((seq, "there_already"))
        else:
            moves.setdefault((project, queue, target), []).append(seq)
    done = 0
    for (project, queue, target), moving in moves.items():
        delays = [random.randint(0, jitter_ms) for _ in moving] if jitter_ms else None
        try:
            answers = yield from redrive(
                queue, moving, to=target, project=project, delay_ms=delays, from_step=from_step
            )
        except (QueueNotFound, NotAQueue):
            conflicts += [(seq, "no_target") for seq in moving]
            continue
        for answer in answers:
            if answer.state in ("ready", "delayed"):
                done += 1
            else:
                conflicts.append((answer.seq, _LEFT_ALONE.get(answer.state, "busy")))
    return Acted(done, conflicts)


def check_action(kind: str, to: str | None, reason: str, from_step: str | None) -> None:
    """Check an action on dead letters."""
    if kind not in KINDS:
        raise InvalidOption(f"An action is one of {', '.join(KINDS)}; it is {str(kind)[:40]!r}.")
    if (kind == REDRIVE) != (to is not None):
        raise InvalidOption("A redrive needs the name of the queue to put the jobs in; a retry or a discard has none.")
    if to is not None:
        check_text(to, "the name of the target queue", MAX_QUEUE_BYTES)
    if from_step is not None:
        if kind == DISCARD:
            raise InvalidOption("What is discarded does not run again: from_step is for a retry or a redrive.")
        check_text(from_step, "from_step", MAX_KEPT_NAME_BYTES)
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
    from_step: str | None = None,
) -> Statements[Acted]:
    """Retry (in the queue that they came from), redrive or discard at most 1,000 dead letters, in one transaction."""
    check_action(kind, to, reason, from_step)
    wanted = check_seqs(seqs)
    yield BEGIN, {}
    return (yield from act_steps(kind, wanted, until, to, reason, jitter_ms, from_step))


class Edited(NamedTuple):
    """The job that replaced a dead letter; if ``seq`` is ``None``, the reason why none did (``CONFLICTS``)."""

    seq: int | None
    queue: str | None
    conflict: str | None


@operation
def edit_and_retry(queue: str, seq: int, *, data: Any, dead_at: datetime, project: str = "") -> Statements[Edited]:
    """Retry one dead letter with other data: a new job with its name, meta and body takes its place."""
    check_place(project, queue)
    check_seqs([seq])
    text, large = yield from _written(seq, codec.dumps(data))
    params = {"project": project, "queue": queue, "seq": seq, "dead_at": dead_at, "data": text}
    new, key = yield from _edit(params)
    if new.conflict == "key_taken" and (yield from free_steps(project, new.queue or "", [key or ""])):
        new, _ = yield from _edit(params)
    if new.seq is not None and large is not None:
        yield from link_steps({new.seq: large})
    return new if new.seq is not None else new._replace(queue=None)


def _edit(params: Mapping[str, Any]) -> Statements[tuple[Edited, str | None]]:
    rows = yield "dead_edit", params
    seq, queue, conflict, key, *_ = rows[0] if rows else (None, "", "gone", "")
    return Edited(seq, queue, conflict), key


class _Old(NamedTuple):
    """The parts of a dead letter that stand in a storage."""

    data_json: str | None
    body: bytes | None = None


def _written(seq: int, text: str) -> Statements[tuple[str, Reference | None]]:
    """Return the text to store for an edited payload; its reference too if it is large."""
    rows = yield from row_steps([seq], payload=True)
    body = None
    if payloads.any_large(rows, payloads.ONLY_DATA):
        (old,) = yield from payloads.steps([_Old(rows[0].data_json)])
        body = old.body
    contents = {0: Content(text, body)}
    found = large_parts(contents)
    if body is not None and all(kind != "body" for _, kind, _ in found):
        # It was large when it was stored, and is not by today's settings: it has no other place.
        found.append((0, "body", body))
    large = (yield from put_steps(contents, found))[0] if found else None
    text = text if large is None else large.text()
    limit = conf.settings.MAX_PAYLOAD_BYTES
    if len(text.encode()) > limit:
        raise PayloadTooLarge(f"The data has more than {limit} bytes.")
    if large is not None:
        yield BEGIN, {}
    return text, large

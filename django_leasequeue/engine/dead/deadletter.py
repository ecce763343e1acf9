"""Taking jobs out that used up their deliveries, and bringing dead letters back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

from ...enums import DEAD_LETTER_SELF
from ...exceptions import InvalidOption
from ...words import KeyVerdict
from .. import arrays
from ..jobs.remove import enforce_cap, holder_steps
from ..limits import MAX_KEPT_NAME_BYTES, check_list, check_place, check_seqs, check_text, clamp_delay
from ..operation import BEGIN, Statements, announce, operation
from ..queues import routing
from ..queues.presets import Definition
from ..queues.queues import find, make_defined, require

logger = logging.getLogger("django_leasequeue")

#: Jobs looked at in one round, and moved by one statement.
ROUND = 1_000


class _Gone(NamedTuple):
    """A job that died: in place (a row of ``bury``), or to a dead-letter topic (``move``)."""

    seq: int
    key: str | None
    name: str | None
    deliveries: int
    #: ``None`` in a row of ``move``: its key is taken in the topic.
    new_seq: int | None = None


def spent_steps(queue_ids: Sequence[int], tags: str | None = None) -> Statements[int]:
    """Move aside the used-up jobs at the head of these queues (or of tags there); return how many."""
    rows = yield "spent", {"queues": arrays.integers(queue_ids), "size": ROUND, "tags": tags}
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
    tokens: Sequence[int] = (),
) -> Statements[list[int]]:
    """Dead-letter jobs of one queue, in place or to its dead-letter topic (made if missing); return those that went."""
    gone: list[_Gone] = []
    if dead_letter == DEAD_LETTER_SELF:
        for start in range(0, len(seqs), ROUND):
            rows = yield "bury", {"queue": queue_id, "seqs": arrays.integers(seqs[start : start + ROUND])}
            gone += [_Gone(*row[:4]) for row in rows]
    else:
        target = yield from find(project, dead_letter)
        if target is None:
            yield from _tell_apart(queue_id)
            yield from make_defined(project, dead_letter, Definition(None, {"type": "log"}))
            target = yield from require(project, dead_letter, leases=False)
        capped = any(target.config.get(option) for option in ("cap_records", "cap_bytes"))
        if capped:
            yield BEGIN, {}
            yield "cap_lock", {"queue": target.id}
        params = {"queue": queue_id, "target": target.id, "node": node, "claims": arrays.integers(tokens)}
        for start in range(0, len(seqs), ROUND):
            moved = yield from _move(params, seqs[start : start + ROUND], project, dead_letter)
            gone += moved
            if capped and moved:
                written = [job.new_seq for job in moved if job.new_seq is not None]
                yield from enforce_cap(target.id, written, dead_letters=True)
    for job in gone:
        yield from announce_dead(queue_id, project, job.seq, job.key, job.name, job.deliveries)
    return [job.seq for job in gone]


def retire_home_steps(
    queue_id: int, seqs: Sequence[int], node: str | None = None, tokens: Sequence[int] = ()
) -> Statements[list[int]]:
    """Call ``retire_steps`` for a queue known by its number; jobs stay if the queue keeps no dead letters."""
    for _, project, _, dead_letter in (yield "queue_names", {"queues": arrays.integers([queue_id])}):
        if dead_letter:
            return (yield from retire_steps(queue_id, project, dead_letter, seqs, node, tokens))
    return []


def announce_dead(
    queue_id: int, project: str | None, seq: int, key: str | None, name: str | None, deliveries: int
) -> Statements[None]:
    """Announce that a job is dead."""
    yield from announce(
        "dead_lettered", queue=queue_id, project=project, seq=seq, key=key, name=name, deliveries=deliveries
    )


def _tell_apart(queue_id: int) -> Statements[None]:
    """Warn where a router by now wants a queue's dead-letter topic in another database than the queue."""
    # The topic is made beside the queue all the same: used-up jobs would stand in the way of all others.
    for _, project, name, dead_letter in (yield "queue_names", {"queues": arrays.integers([queue_id])}):
        try:
            routing.check_dead_letter(project, name, dead_letter)
        except (InvalidOption, ImproperlyConfigured) as error:
            logger.warning("%s It is made in the database of the queue.", error)


def _move(params: dict[str, Any], seqs: Sequence[int], project: str, target: str) -> Statements[list[_Gone]]:
    """Move jobs with their keys; a key that stays taken in the target is left behind."""
    moved: list[_Gone] = []
    for keyed in (True, True, False):
        rows = yield "move", {**params, "seqs": arrays.integers(seqs), "keyed": keyed}
        tried = [_Gone(*row[:5]) for row in rows]
        moved += [job for job in tried if job.new_seq is not None]
        taken = {job.seq: job.key for job in tried if job.new_seq is None and job.key is not None}
        if not taken:
            break
        yield from free_steps(project, target, list(taken.values()))
        seqs = list(taken)
    return moved


def free_steps(project: str, queue: str, keys: Sequence[str]) -> Statements[bool]:
    """Free the keys of a queue that are no longer needed; return whether to try again."""
    found = yield from holder_steps(project, queue, arrays.texts(keys))
    return len(found) < len(keys) or any(holder.verdict != KeyVerdict.HELD for holder in found)


class Redriven(NamedTuple):
    """Where a dead letter went."""

    seq: int
    #: ``ready``, ``delayed``, ``conflict`` (key taken), ``no_step`` or ``not_found``.
    state: str
    #: Its number in the target queue, the old one if it stayed.
    new_seq: int | None


#: The words for the outcomes of the statement ``redrive``: -1 is a key that is taken.
_REDRIVEN = ("ready", "delayed")
_OUTCOMES = {-1: "conflict", **dict(enumerate(_REDRIVEN))}


@operation
def redrive(
    queue: str,
    seqs: Sequence[int],
    *,
    to: str | None = None,
    project: str = "",
    delay_ms: int | Sequence[int | None] | None = None,
    from_step: str | None = None,
) -> Statements[list[Redriven]]:
    """Bring dead letters back to the end of a live queue (``to``, by default their own), as if never delivered.

    ``queue``: their own (dead in place) or a dead-letter topic. ``delay_ms``: one delay for all, or one per job.
    ``from_step``: it and the steps kept after it are forgotten and run again; a job without it is left alone.
    """
    check_place(project, queue, to or queue)
    wanted = check_seqs(seqs)
    if delay_ms is None or isinstance(delay_ms, int):
        delay_ms = [delay_ms] * len(wanted)
    delays: Sequence[int | None] = check_list(delay_ms, "delay_ms")
    if len(delays) != len(wanted):
        raise InvalidOption("delay_ms must be one number, or one per seq.")
    yield from require(project, queue, leases=False)
    target = to or queue
    if to is not None and (yield from find(project, to)) is None:
        routing.check_redrive(project, to, routing.alias_of(project, queue))
    if target != queue:  # locked against deletion until the end
        yield BEGIN, {}
        yield "queue_hold", {"project": project, "name": target}
    yield from require(project, target)
    waits = dict(zip(wanted, [clamp_delay(delay) or 0 for delay in delays], strict=True))
    found: dict[int, Redriven] = {}
    tried = wanted
    if from_step is not None:
        check_text(from_step, "from_step", MAX_KEPT_NAME_BYTES)
        yield BEGIN, {}
        having = {seq for (seq,) in (yield "step_having", {"seqs": arrays.integers(wanted), "name": from_step})}
        found = {seq: Redriven(seq, "no_step", None) for seq in wanted if seq not in having}
        tried = [seq for seq in wanted if seq in having]
    for _ in range(2):
        these = {"seqs": arrays.integers(tried), "delays": arrays.integers([waits[seq] for seq in tried])}
        rows = yield "redrive", {"project": project, "queue": queue, "target": target, **these}
        taken = {}
        for seq, outcome, new_seq, key, *_ in rows:
            found[seq] = Redriven(seq, _OUTCOMES[outcome], new_seq or seq)
            if outcome < 0:
                taken[seq] = key
        tried = list(taken)
        if not tried or not (yield from free_steps(project, target, list(taken.values()))):
            break
    if from_step is not None:
        moved = arrays.integers(each.new_seq for each in found.values() if each.new_seq and each.state in _REDRIVEN)
        yield "step_redo", {"seqs": moved, "name": from_step}
    return [found.get(seq, Redriven(seq, "not_found", None)) for seq in wanted]

"""Bulk operations over dead letters: asked for by people, carried out by the reaper, batch by batch.

A batch and the note of it are one transaction: an operation goes on exactly where it was, whatever happened meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import transaction

from ...exceptions import InvalidOption, LeaseQueueError, OperationActive
from .. import arrays, codec
from ..audit import CODE, Actor
from ..django_executor import run
from ..limits import check_integer, check_seqs
from ..operation import BEGIN, Statements, operation
from ..queues.queues import require
from .action import Acted, act_steps, check_action
from .filter import DeadFilter, from_query
from .search import DeathPlace, match_steps, queue_steps, window_steps
from .triage import Preview

#: Dead letters of one batch, and those that are looked at for it where the filter needs a search.
BATCH, LOOK = 500, 2_000
MAX_SELECTION = 10_000
#: Conflicts that are remembered one by one; all of them are counted.
MAX_CONFLICTS = 1_000
MAX_RATE = 100_000.0
MAX_JITTER_MS = 86_400_000
#: Seconds of its rate that an operation may catch up on at a time.
CATCH_UP = 2.0

_MOVES = {
    "pause": (("pending", "running"), "paused"),
    "resume": (("paused",), "pending"),
    "cancel": (("pending", "running", "paused"), "cancelled"),
}


class TakenOperation(NamedTuple):
    """An operation as a batch finds it."""

    id: int
    kind: str
    state: str
    project: str | None
    queue: str | None
    filters: str
    selected: int
    seqs: str | None
    cursor: str | None
    frozen_at: datetime
    target: str | None
    rate: float | None
    jitter_ms: int
    reason: str
    username: str
    paced_at: datetime | None
    conflict_counts: str
    conflicts_kept: int
    now: datetime
    from_step: str | None

    @property
    def allowed(self) -> int:
        """The number of jobs that its rate allows now."""
        if self.rate is None:
            return BATCH
        if self.paced_at is None:
            return 1
        # A microsecond's grace: times are rounded to it.
        passed = min((self.now - self.paced_at).total_seconds(), max(CATCH_UP, 1 / self.rate)) + 1e-6
        return min(BATCH, int(self.rate * passed))

    def paced(self, used: int) -> datetime | None:
        """Return from when on the next jobs are counted, after ``used`` of them."""
        if self.rate is None:
            return None
        earliest = self.now - timedelta(seconds=max(CATCH_UP, 1 / self.rate))
        if self.paced_at is None:
            return self.now
        return max(self.paced_at, earliest) + timedelta(seconds=used / self.rate)


class Changed(NamedTuple):
    """An operation after a change of its state, with its progress."""

    id: int
    kind: str
    project: str | None
    queue: str | None
    done: int
    conflicts: int


class Batch(NamedTuple):
    """The dead letters of a batch, where the next one begins, whether this is the last, how many were looked at."""

    seqs: list[int]
    cursor: list[int]
    last: bool
    looked_at: int


class Asked(NamedTuple):
    """An operator's action on dead letters; ``at``: when the operator saw the list."""

    kind: str
    wanted: DeadFilter
    seqs: Sequence[int] | None = None
    to: str | None = None
    rate: float | None = None
    jitter_ms: int = 0
    reason: str = ""
    at: datetime | None = None
    from_step: str | None = None

    def facts(self, detail: dict[str, Any]) -> dict[str, Any]:
        """Return its details for the audit."""
        place = {"project": self.wanted.project or "", "queue": self.wanted.queue or ""}
        detail = detail | ({"from_step": self.from_step} if self.from_step else {})
        return {**place, "reason": self.reason, "detail": detail}


@operation
def start_operation(
    asked: Asked, by: Actor = CODE, expected: int | None = None, *, capped: bool = False
) -> Statements[int]:
    """Ask for a bulk operation; the reaper begins with it at its next turn."""
    wanted, seqs = asked.wanted, asked.seqs
    check_action(asked.kind, asked.to, asked.reason, asked.from_step)
    check_integer(asked.jitter_ms, "jitter_ms", 0, MAX_JITTER_MS)
    if asked.rate is not None and not 0 < asked.rate <= MAX_RATE:
        raise InvalidOption(f"A rate is more than 0 and at most {MAX_RATE:,.0f} jobs a second; it is {asked.rate}.")
    if wanted.prefixes:
        raise InvalidOption("An operation is over a queue or over all of them, not over those that begin so.")
    numbers = None if seqs is None else sorted(check_seqs(seqs, MAX_SELECTION))
    if asked.to is not None:
        yield from require(wanted.project or "", asked.to)
    yield BEGIN, {}
    yield "operation_lock", {}
    params = {
        **asked._asdict(),
        **by._asdict(),
        "project": wanted.project,
        "queue": wanted.queue,
        "filters": wanted.query(),
        "seqs": None if numbers is None else arrays.integers(numbers),
        "frozen_at": asked.at,
        "target": asked.to,
        "reason": asked.reason.strip(),
        "expected": expected,
        "expected_capped": capped,
    }
    ((new, there),) = yield "operation_start", params
    if new is None:
        raise OperationActive(asked.kind, there)
    return int(new)


@operation
def change_operation(operation_id: int, change: str) -> Statements[Changed | None]:
    """Pause, resume or cancel an operation; a batch that is under way ends first."""
    if change not in _MOVES:
        raise InvalidOption(f"An operation can be told {', '.join(_MOVES)}; not {str(change)[:40]!r}.")
    sources, state = _MOVES[change]
    rows = yield "operation_change", {"id": operation_id, "sources": arrays.texts(sources), "state": state}
    return Changed._make(rows[0]) if rows else None


def start(
    asked: Asked, found: Preview, by: Actor, record: Callable[..., Any], using: str, detail: dict[str, Any]
) -> int:
    """Start an operation over the dead letters that a preview counted; ``record`` writes its line of the audit."""
    at = asked.at or found.at
    frozen = asked._replace(wanted=asked.wanted.frozen(at), at=at)
    with transaction.atomic(using=using):
        number = run(start_operation(frozen, by, found.matches, capped=found.capped), using)
        record(
            asked.kind,
            seqs=asked.seqs or (),
            filters="" if asked.seqs is not None else frozen.wanted.query(),
            counts={"expected": found.matches, **({"capped": True} if found.capped else {})},
            operation=number,
            **asked.facts(detail),
        )
    return number


def change(number: int, told: str, record: Callable[..., Any], using: str) -> Changed | None:
    """Pause, resume or cancel an operation, with the line of the audit, which ``record`` writes."""
    with transaction.atomic(using=using):
        done = run(change_operation(number, told), using)
        if done is not None:
            place = {"project": done.project or "", "queue": done.queue or ""}
            counts = {"done": done.done, "conflicts": done.conflicts}
            record(f"{done.kind}.{told}", **place, operation=number, counts=counts)
    return done


@operation
def run_batch(operation_id: int) -> Statements[bool]:
    """Do the next batch of an operation, as large as its rate allows now."""
    yield BEGIN, {}
    rows = yield "operation_take", {"id": operation_id, "size": BATCH}
    if not rows:
        return False
    taken = TakenOperation._make(rows[0])
    allowed = taken.allowed
    if not allowed:
        return False
    try:
        batch = yield from _next(taken, allowed)
        how = (taken.frozen_at, taken.target, taken.reason, taken.jitter_ms, taken.from_step)
        acted = yield from act_steps(taken.kind, batch.seqs, *how)
        yield from _note(taken, batch, acted)
    except LeaseQueueError as error:
        yield from _note(taken, None, Acted(0, []), str(error))
        return False
    return not batch.last and (taken.rate is None or not batch.seqs or allowed == BATCH)


@operation
def fail_operation(operation_id: int, error: str) -> Statements[None]:
    """End an operation whose batches fail; earlier batches stay done."""
    yield BEGIN, {}
    rows = yield "operation_take", {"id": operation_id, "size": 0}
    if rows:
        yield from _note(TakenOperation._make(rows[0]), None, Acted(0, []), error)


def _next(taken: TakenOperation, allowed: int) -> Statements[Batch]:
    """Find the dead letters of the next batch, the oldest death first."""
    place: list[int] | None = None if taken.cursor is None else codec.loads(taken.cursor)
    if taken.seqs is not None:
        seqs = [int(seq) for seq in taken.seqs.strip("{}").split(",") if seq][:allowed]
        end = (place[0] if place else 0) + len(seqs)
        return Batch(seqs, [end], end >= taken.selected, len(seqs))
    wanted = from_query(taken.filters).frozen(taken.frozen_at)
    queues = sorted((yield from queue_steps(wanted)))
    size = allowed + 1 if wanted.indexed else LOOK  # one more tells whether this is the last batch
    window = yield from window_steps(wanted, queues, DeathPlace.of(place), size, oldest=True)
    if not window.places:
        return Batch([], place or [0, 0], True, 0)
    places, seqs, last = window.places, window.seqs, not window.more
    if not wanted.indexed:
        seqs = [match.seq for match in (yield from match_steps(wanted, seqs))]
    if len(seqs) > allowed:
        seqs, last = seqs[:allowed], False
        places = places[: window.seqs.index(seqs[-1]) + 1]
    return Batch(seqs, places[-1].cursor, last, len(places))


def _note(taken: TakenOperation, batch: Batch | None, acted: Acted, error: str = "") -> Statements[None]:
    counts = Counter(codec.loads(taken.conflict_counts))
    counts.update(why for _, why in acted.conflicts)
    kept = [[seq, why] for seq, why in acted.conflicts[: MAX_CONFLICTS - taken.conflicts_kept]]
    used = acted.done + len(acted.conflicts)
    noted = {
        "id": taken.id,
        "state": "failed" if error else "done" if batch is not None and batch.last else "running",
        "looked_at": batch.looked_at if batch is not None else 0,
        "done": acted.done,
        "conflicts": len(acted.conflicts),
        "conflict_counts": codec.dumps(dict(counts)),
        "conflict_sample": codec.dumps(kept),
        "cursor": taken.cursor if batch is None else codec.dumps(batch.cursor),
        "paced_at": taken.paced(used),
        "error": error,
    }
    yield "operation_note", noted


@operation
def active_operations() -> Statements[list[int]]:
    """Return the numbers of the operations that the reaper has to go on with, oldest first."""
    return [number for (number,) in (yield "operation_next", {"size": 20})]

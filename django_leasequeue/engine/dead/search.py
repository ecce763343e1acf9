"""Finding dead letters: windows of numbers by index, then a search within each for conditions without an index."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ...enums import JobState
from ...exceptions import InvalidOption
from .. import arrays
from ..operation import Statements
from .filter import DeadFilter

#: Queues and topics with dead letters that one call looks at.
MAX_QUEUES = 1_000
#: Dead letters that one call looks at for what no index answers, and how many at a time.
MAX_SCAN, CHUNK = 10_000, 500
#: Seconds after which a search stops at the end of a chunk: a page is to answer within 0.3.
PATIENCE = 0.12
#: Index entries of a window, over all queues together, and of one queue at least: a page of the admin fits.
MAX_ENTRIES, MIN_ENTRIES = 5_000, 51
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DeadRow(NamedTuple):
    """A dead letter as a list shows it. JSON columns are text, and only there where the caller asked for payloads."""

    seq: int
    queue_id: int
    project: str
    queue: str
    state_number: int
    name: str | None
    key: str | None
    tag: str | None
    deliveries: int
    error_type: str | None
    error: str | None
    fingerprint: str | None
    dead_at: datetime
    created_at: datetime
    #: The queue that one of a dead-letter topic came from, and its number there (of an edited job: which it replaced).
    home: str | None
    source_seq: int | None
    data_json: str | None
    meta_json: str | None
    errors_json: str | None

    @property
    def state(self) -> str:
        """``dead``; in a dead-letter topic ``record``, or ``ready``, ``delayed``, ``leased``."""
        return str(JobState(self.state_number).label)


class DeathPlace(NamedTuple):
    """A place in the order of deaths."""

    dead_at: datetime
    seq: int

    @property
    def cursor(self) -> list[int]:
        return [micros(self.dead_at), self.seq]

    @classmethod
    def of(cls, cursor: Sequence[int] | None) -> DeathPlace | None:
        return None if cursor is None else cls(from_micros(cursor[0]), cursor[1])


class DeadQueue(NamedTuple):
    """A row of ``dead_queues``: a queue or topic with dead letters."""

    id: int
    project: str
    queue: str
    type: str


class LookedRow(NamedTuple):
    """A row of ``dead_groups``: a group, and how many were looked at for it."""

    queue_id: int
    fingerprint: str
    first_at: datetime
    last_at: datetime
    looked_at: int = 0

    @property
    def key(self) -> tuple[int, str]:
        return self.queue_id, self.fingerprint


class Match(NamedTuple):
    """A row of ``dead_match``: a dead letter that a filter wants."""

    seq: int
    queue_id: int
    name: str | None
    fingerprint: str | None
    dead_at: datetime
    error_type: str | None


def micros(at: datetime) -> int:
    """Return a time in microseconds since 1970."""
    return (at - EPOCH) // timedelta(microseconds=1)


def from_micros(value: int) -> datetime:
    """Return the time of a number of microseconds since 1970."""
    try:
        return EPOCH + timedelta(microseconds=value)
    except OverflowError as error:
        raise InvalidOption("the cursor is not one that a listing gave.") from error


def queue_steps(wanted: DeadFilter) -> Statements[dict[int, DeadQueue]]:
    """Find the queues with dead letters, by id."""
    where = {"project": wanted.project, "queue": wanted.queue, "prefixes": arrays.texts(wanted.prefixes)}
    rows = yield "dead_queues", {**where, "size": MAX_QUEUES}
    return {found.id: found for found in map(DeadQueue._make, rows)}


class Window(NamedTuple):
    """Dead letters in order, and whether there may be more behind the last."""

    places: list[DeathPlace]
    more: bool

    @property
    def seqs(self) -> list[int]:
        return [place.seq for place in self.places]

    @property
    def end(self) -> DeathPlace | None:
        """The last one if there may be more behind it."""
        return self.places[-1] if self.more else None


def window_steps(
    wanted: DeadFilter, queues: Sequence[int], place: DeathPlace | None, size: int, *, oldest: bool = False
) -> Statements[Window]:
    """Read the next numbers of the dead letters that the indexed part of a filter wants."""
    if not queues:
        return Window([], False)
    name = "dead_oldest" if oldest else "dead_newest"
    params: dict[str, Any] = {
        "queues": arrays.integers(queues),
        "since": wanted.since,
        "until": wanted.until,
        "at": None if place is None else place.dead_at,
        "seq": None if place is None else place.seq,
        "each": min(size, max(MAX_ENTRIES // len(queues), MIN_ENTRIES)),
        "size": size,
    }
    if wanted.fingerprint is not None:
        name, params = f"{name}_group", {**params, "fingerprint": wanted.fingerprint}
    rows = yield name, params
    # The last column: whether the window ends before its queues do.
    more = bool(rows) and (rows[0][-1] or len(rows) == size)
    return Window([DeathPlace(dead_at, seq) for seq, dead_at, _ in rows], more)


def match_steps(wanted: DeadFilter, seqs: Sequence[int]) -> Statements[list[Match]]:
    """Keep the dead letters that the whole filter wants."""
    if not seqs:
        return []
    rows = yield "dead_match", {"seqs": arrays.integers(seqs), **wanted.matching()}
    found = [Match._make(row) for row in rows]
    # Positional arguments have names only where a task does.
    hidden = {name for name in {match.name for match in found} if wanted.payload and wanted.hidden(name)}
    return [match for match in found if match.name not in hidden]


class Search(NamedTuple):
    """Matching dead letters, the number examined, and the last one examined if there may be more."""

    rows: list[Match]
    looked_at: int
    last: DeathPlace | None


def search_steps(
    wanted: DeadFilter,
    queues: Sequence[int],
    place: DeathPlace | None,
    *,
    enough: int,
    limit: int,
    patience: float | None = None,
) -> Statements[Search]:
    """Look through at most ``limit`` dead letters, the newest first, for ``enough`` that a filter wants."""
    end = time.monotonic() + (PATIENCE if patience is None else patience)
    found: list[Match] = []
    looked_at = 0
    while True:
        window = yield from window_steps(wanted, queues, place, min(CHUNK, limit - looked_at))
        found += yield from match_steps(wanted, window.seqs)
        looked_at += len(window.places)
        place = window.end
        if place is None:
            return Search(found, looked_at, None)
        if len(found) >= enough or looked_at >= limit or time.monotonic() >= end:
            return Search(found, looked_at, place)


def row_steps(seqs: Sequence[int], *, payload: bool = False) -> Statements[list[DeadRow]]:
    """Read dead letters by number."""
    if not seqs:
        return []
    rows = yield "dead_rows", {"seqs": arrays.integers(seqs), "payload": payload}
    return [DeadRow._make(row) for row in rows]

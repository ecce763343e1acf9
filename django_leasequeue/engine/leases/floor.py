"""Floors, lower bounds that keep readers from walking over dead index entries, and the cursor of a busy claimer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ...enums import JobFlag
from ...words import Due
from .. import arrays
from ..limits import check_ids
from ..operation import Statements, operation
from ..rows import LeasedJob


class Floor(NamedTuple):
    """A floor: what is below ``value`` need not be read. ``low`` is the lowest live value, seen before ``mark``.

    ``mark`` is None where the caller's transaction proposes nothing. ``oldest`` is the oldest transaction that runs; no
    number from ``head`` on had been drawn. The process ``pid`` of a server that was ``started`` then has answered.
    """

    queue_id: int
    kind: int
    rank: int
    value: int
    low: int
    mark: int | None
    oldest: int
    head: int
    pid: int
    started: datetime


class _Proposed(NamedTuple):
    """A live value that becomes a floor when no transaction before ``mark`` runs any more."""

    low: int
    mark: int


#: The server process that answered, and when its server was started. What was learnt from one says nothing of another:
#: after a crash or a failover the same numbers may be drawn again.
_Server = tuple[int, datetime | None]
_NO_SERVER: _Server = (0, None)


class Proposals:
    """The last proposals of a caller of ``advance_floors``: the next call raises floors to them if they hold."""

    def __init__(self) -> None:
        self._server = _NO_SERVER
        #: By (queue id, kind, rank).
        self._known: dict[tuple[int, int, int], _Proposed] = {}
        self._head = 0

    def parameters(self) -> dict[str, Any]:
        return {
            "ids": arrays.integers([queue_id for queue_id, _, _ in self._known]),
            "kinds": arrays.integers([kind for _, kind, _ in self._known]),
            "ranks": arrays.integers([rank for _, _, rank in self._known]),
            "lows": arrays.integers([proposed.low for proposed in self._known.values()]),
            "marks": arrays.integers([proposed.mark for proposed in self._known.values()]),
            "head": self._head,
            "pid": self._server[0],
            "started": self._server[1],
        }

    def note(self, seen: Sequence[Floor]) -> None:
        """Keep the floors of a look; a proposal stays while its transactions are open."""
        known = self._known
        self._known = {}
        for floor in seen:
            if (floor.pid, floor.started) != self._server:
                self._server, known = (floor.pid, floor.started), {}
            self._head = floor.head
            place = (floor.queue_id, floor.kind, floor.rank)
            before = known.get(place)
            if before is not None and before.mark > floor.oldest:
                self._known[place] = before  # it comes true sooner than a new one
            elif floor.mark is not None:
                self._known[place] = _Proposed(floor.low, floor.mark)


class ConnectionFloors:
    """Floors that a claimer finds by its own looks, moments after every change; they hold for its connection alone.

    The floors that all share are raised some times a second. Under a long transaction elsewhere, which keeps dead index
    entries alive, several claimers leave thousands of them behind in that time, and each look would walk over them.
    They are found anew every half minute, so one that is wrong, for whatever reason, hides no job for longer.
    """

    #: Places that are remembered.
    MOST = 1_000
    #: Seconds for which they are remembered.
    MAX_AGE = 30.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._server = _NO_SERVER
        self._head = 0
        #: By (queue id, rank): the floor, and what becomes one.
        self._floors: dict[tuple[int, int], int] = {}
        self._proposed: dict[tuple[int, int], _Proposed] = {}

    def parameters(self) -> dict[str, Any]:
        return {
            "pid": self._server[0],
            "started": self._server[1],
            "ids": arrays.integers([queue_id for queue_id, _ in self._floors]),
            "places": arrays.integers([rank for _, rank in self._floors]),
            "floors": arrays.integers(self._floors.values()),
            "head": self._head,
        }

    def note(self, looks: Sequence[QueueLook]) -> None:
        now, first = self._clock(), looks[0]
        server = (first.pid, first.started)
        if server != self._server or len(self._floors) > self.MOST or now - self._since > self.MAX_AGE:
            self._floors, self._proposed, self._server, self._since = {}, {}, server, now
        elif self._head:
            for look in looks:
                for rank, low in zip(look.ranks, look.proposed, strict=True):
                    place = (look.queue_id, rank)
                    before = self._proposed.get(place)
                    if before is not None and before.mark > first.oldest:
                        continue  # it comes true sooner than a new one
                    if before is not None:
                        self._floors[place] = max(self._floors.get(place, 0), min(before.low, low))
                        del self._proposed[place]
                    if first.mark is not None:
                        self._proposed[place] = _Proposed(low, first.mark)
        self._head = first.head


@operation
def advance_floors(proposals: Proposals, queue_ids: Sequence[int] | None = None) -> Statements[list[Floor]]:
    """Raise the floors of these queues (all, by default) as far as the last call's proposals allow; return them.

    ``proposals`` are the caller's own, the same for every call. Call it some times a second while jobs are claimed.
    """
    queues = None if queue_ids is None else arrays.integers(check_ids(queue_ids))
    rows = yield "floor", {"queues": queues, **proposals.parameters()}
    seen = [Floor._make(row) for row in rows]
    proposals.note(seen)
    return seen


class MendedFloor(NamedTuple):
    """A floor that stood above a live row: it was at ``value``, and is not above ``low`` any more."""

    queue_id: int
    queue: str
    project: str
    kind: int
    rank: int
    value: int
    low: int


@operation
def mend_floors(queue_ids: Sequence[int] | None = None) -> Statements[list[MendedFloor]]:
    """Lower the floors of these queues (all, by default) below which something waits, so that it is seen again.

    No floor gets there by the rules; a clock that went back, a failover or a fault of ours may bring it there.
    """
    queues = None if queue_ids is None else arrays.integers(check_ids(queue_ids))
    yield "turn_mend", {"queues": queues}
    return [MendedFloor._make(row) for row in (yield "floor_mend", {"queues": queues})]


#: What may be due in a queue, as bits: ``Look.due``, and the first figure of a deal.
LEASES, DELAYED, EXPIRED, TURNS = map(int, Due)


class QueueLook(NamedTuple):
    """One queue as claim_look.sql has found it; ``oldest`` to ``started`` as of a ``Floor``.

    ``lows``: the lowest fresh position worth reading of each of ``ranks``; ``proposed``: what may become a floor of
    each when no transaction before ``mark`` (None: never) runs any more.
    """

    queue_id: int
    name: str
    type: str
    claimable: bool
    due: int
    has_returned: bool
    has_fresh: bool
    ranks: list[int]
    lows: list[int]
    proposed: list[int]
    oldest: int
    mark: int | None
    head: int
    pid: int
    started: datetime
    #: Jobs that may be leased beside those that are; ``None``: the queue has no limit.
    slots: int | None
    #: Seconds until its first turn of limits and workflows; ``None``: it has none, or gives no jobs.
    turn_in: float | None = None
    #: Whether it was not noted for a minute that jobs were asked for.
    unnoted: bool = False


_FLOW, _RATED = int(JobFlag.FLOW), int(JobFlag.RATED)

#: Seconds between two looks at turns that are due, at least: another claimer may be taking them.
TURN_EVERY = 0.005

#: The parameters of claim_look.sql of a claimer without floors of its own.
NO_FLOORS = ConnectionFloors().parameters()

#: Queues that a claim tries without a look, at most: each is a statement.
HINTS = 2


class ClaimCursor:
    """A claimer's last look at its queues, forgotten every ``max_age`` seconds and whenever jobs run short.

    The floors of a queue move a moment behind the claims, because they must be right for everybody; a claimer that
    drains a queue moves them on by what it has taken. Under a long transaction elsewhere, which keeps dead index
    entries alive, that saves it from walking over its own work. A job that becomes ready behind it (released, expired,
    due, committed late) waits for at most ``max_age``.

    With ``eager`` the first claim after an idle time takes fresh jobs without a look, and so do those that follow
    announcements: what they give comes sooner, and may be less than is there (``cut``).
    """

    def __init__(
        self, max_age: float = 0.5, clock: Callable[[], float] = time.monotonic, *, eager: bool = False
    ) -> None:
        self.max_age = max_age
        self._eager = eager
        self._clock = clock
        #: Whether a claim has begun and not ended.
        self._claims = False
        self._forget()

    def _forget(self) -> None:
        self.floors = ConnectionFloors()
        self._hint: list[QueueLook] = []
        self._used_hint: list[QueueLook] = []
        #: Whether jobs of the last claim were under limits: their ends leave turns, which only a look finds.
        self._limited = False
        self._since = self._clock()
        self._names: tuple[str, ...] = ()
        self._looks: list[QueueLook] = []
        #: Whether the last claim may have left jobs although it gave less than was asked for: a suspect, large
        #: payloads, an eager claim. Claim again before going idle.
        self.cut = False
        #: Whether turns of limits and workflows are due: what they set free is ready in a moment.
        self.turns = False
        #: When the next turn of each queue is due (monotonic), by its name: it may let a job under a rate start.
        self._turns_at: dict[str, float] = {}
        #: When the last claim asked for jobs under rates (monotonic): their permits count from then on.
        self.admitted_at = 0.0

    def begin(self) -> None:
        """Begin a claim. After one that broke off, forget the looks of its transaction."""
        if self._claims:
            self._forget()
        self._claims = True

    def end(self) -> None:
        """Note that the claim has ended."""
        self._claims = False

    def looks(self, names: Sequence[str]) -> list[QueueLook]:
        """Return the remembered looks at these queues; empty if a new look is needed."""
        if self._limited or tuple(names) != self._names or self._clock() - self._since > self.max_age or self.due():
            self._looks = []
        return self._looks

    def due(self) -> list[str]:
        """Return the queues that have turns which are due, as far as the last looks tell: the next claim looks anew."""
        if not self._turns_at:
            return []
        now = self._clock()
        return [name for at, name in sorted((at, name) for name, at in self._turns_at.items()) if at <= now]

    def until_turn(self) -> float:
        """Return the seconds until the next turn of one of the queues is due; infinite if none is known."""
        return min(self._turns_at.values(), default=math.inf) - self._clock()

    def saw(self, names: Sequence[str], looks: Sequence[QueueLook]) -> None:
        """Remember a look at queues of these names."""
        if looks:
            self.floors.note(looks)
        self.skip(names)
        now = self._clock()
        for look in looks:
            if look.turn_in is not None:
                self._turns_at[look.name] = now + max(TURN_EVERY, look.turn_in)

    def skip(self, names: Iterable[str]) -> None:
        """Forget the turns of queues: they are not due until a claim names these queues again."""
        if self._turns_at:
            for name in names:
                self._turns_at.pop(name, None)

    def hint(self, names: Sequence[str]) -> list[QueueLook]:
        """Return where fresh jobs would stand, after an idle time; once, and empty when a look is better."""
        hint, self._used_hint, self._hint = self._hint, self._hint, []
        if self._limited or tuple(names) != self._names:
            return []
        return [look._replace(has_fresh=True, has_returned=False) for look in hint]

    def announced(self) -> None:
        """Let the next claim take fresh jobs without a look as the last one did: a producer has just announced some."""
        if not self._hint and self._clock() - self._since <= self.max_age:
            self._hint = self._used_hint

    def took(self, jobs: Sequence[LeasedJob]) -> None:
        if jobs:
            self._limited = any(job.flags & _FLOW for job in jobs)

    def note(
        self, names: Sequence[str], looks: Sequence[QueueLook], jobs: Sequence[LeasedJob], *, full: bool, looked: bool
    ) -> None:
        """Remember where a claim left off; forget it all if the claim gave fewer jobs than asked."""
        if looked:
            self._since = self._clock()
            self._names = tuple(names)
        self.took(jobs)
        if not full:
            self._looks = []
            # Of a queue with slots the look says first whether one is free.
            hints = self._eager and looked and len(looks) <= HINTS and all(look.slots is None for look in looks)
            self._hint = list(looks) if hints else []
            return
        past: dict[tuple[int, int], int] = {}
        for job in jobs:
            if job.flags & _RATED:
                continue  # it came out of its order
            place = (job.queue_id, job.rank)
            past[place] = max(past.get(place, -1), job.position)
        self._looks = []
        for look in looks:
            places = zip(look.ranks, look.lows, strict=True)
            lows = [max(low, past.get((look.queue_id, rank), -1) + 1) for rank, low in places]
            self._looks.append(look if look.has_returned else look._replace(lows=lows))

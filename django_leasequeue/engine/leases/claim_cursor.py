"""The cursor of a busy claimer: it need not read again what it read a moment ago."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ...enums import JobFlag
from ..rows import LeasedJob
from .floor import ConnectionFloors

#: What may be due in a queue, as bits: ``Look.due``, and the first figure of a deal.
LEASES, DELAYED, EXPIRED, TURNS = 1, 2, 4, 8


class QueueLook(NamedTuple):
    """What claim_look.sql says of one queue.

    ``lows``: the lowest fresh position worth reading of each of ``ranks``; ``proposed``: what may become a floor of
    each when no transaction before ``mark`` (None: never) runs any more; none before ``oldest`` does. No number from
    ``head`` on was drawn. ``pid`` and ``started`` are the server process that answered, and the start of its server.
    """

    queue_id: int
    name: str
    type: str
    gives: bool
    due: int
    again: bool
    fresh: bool
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


_FLOW = int(JobFlag.FLOW)

#: The parameters of claim_look.sql of a claimer without floors of its own.
NO_FLOORS = ConnectionFloors().parameters()

#: Queues that a claim tries without a look, at most: each is a statement.
HINTS = 2


class ClaimCursor:
    """A claimer's last look at its queues, which its own claims move on.

    It is forgotten every ``max_age`` seconds and whenever jobs run short.

    The floors of a queue move a moment behind the claims, because they must be right for everybody; a claimer that
    drains a queue knows for itself what it has taken. Under a long transaction elsewhere, which keeps dead index
    entries alive, that saves it from walking over its own work. A job that becomes ready behind it (released, expired,
    due, committed late) waits for at most ``max_age``.

    With ``eager`` the first claim after an idle time takes fresh jobs without a look, and so do those that follow
    announcements: what they give comes sooner, and may be less than is there (``cut``).
    """

    def __init__(
        self, max_age: float = 0.5, clock: Callable[[], float] = time.monotonic, *, eager: bool = False
    ) -> None:
        self.max_age = max_age
        self._floors = ConnectionFloors()
        self._eager = eager
        self._hint: list[QueueLook] = []
        self._used_hint: list[QueueLook] = []
        #: Whether the last jobs were under limits, whose next ones stand at their old places.
        self._old_places = False
        self._clock = clock
        self._since = clock()
        self._names: tuple[str, ...] = ()
        self._looks: list[QueueLook] = []
        #: Whether the last claim may have left jobs although it gave less than was asked for: a suspect, large
        #: payloads, an eager claim. Claim again before going idle.
        self.cut = False
        #: Whether turns of limits and workflows are due: what they set free is ready in a moment.
        self.turns = False

    def looks(self, names: Sequence[str]) -> list[QueueLook]:
        """Return what is remembered of these queues; empty when it has to be looked at anew."""
        if tuple(names) != self._names or self._clock() - self._since > self.max_age:
            self._looks = []
        return self._looks

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of claim_look.sql that are the claimer's."""
        return self._floors.parameters()

    def looked(self, looks: Sequence[QueueLook]) -> None:
        """Note the answer of claim_look.sql."""
        for look in looks[:1]:
            seen = {
                (look.queue_id, rank): low
                for look in looks
                for rank, low in zip(look.ranks, look.proposed, strict=True)
            }
            self._floors.note((look.pid, look.started), look.head, look.oldest, look.mark, seen)

    def hint(self, names: Sequence[str]) -> list[QueueLook]:
        """Return where fresh jobs would stand, after an idle time; once, and empty when a look is better."""
        hint, self._used_hint, self._hint = self._hint, self._hint, []
        again = self._old_places
        return [look._replace(fresh=True, again=again) for look in hint] if tuple(names) == self._names else []

    def announced(self) -> None:
        """Let the next claim take fresh jobs without a look as the last one did: a producer has just announced some."""
        if not self._hint and self._clock() - self._since <= self.max_age:
            self._hint = self._used_hint

    def took(self, jobs: Sequence[LeasedJob]) -> None:
        """Note what a claim gave."""
        if jobs:
            self._old_places = jobs[-1].flags & _FLOW > 0

    def note(
        self, names: Sequence[str], looks: Sequence[QueueLook], jobs: Sequence[LeasedJob], *, full: bool, fresh: bool
    ) -> None:
        """Remember what was seen and where a claim left off; forget everything when it gave less than was asked for."""
        if fresh:
            self._since = self._clock()
            self._names = tuple(names)
        self.took(jobs)
        if not full:
            self._looks = []
            # Of a queue with slots the look says first whether one is free.
            hints = self._eager and fresh and len(looks) <= HINTS and all(look.slots is None for look in looks)
            self._hint = list(looks) if hints else []
            return
        past: dict[tuple[int, int], int] = {}
        for job in jobs:
            place = (job.queue_id, job.rank)
            past[place] = max(past.get(place, -1), job.position)
        self._looks = [
            look._replace(
                lows=[
                    max(low, past.get((look.queue_id, rank), -1) + 1)
                    for rank, low in zip(look.ranks, look.lows, strict=True)
                ]
            )
            if not look.again
            else look
            for look in looks
        ]

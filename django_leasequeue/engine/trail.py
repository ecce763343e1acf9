"""Where a busy claimer left off: it need not walk again over the dead entries of what it claimed a moment ago.

The floor of a queue moves a few seconds behind the claims, because it must be right for everybody (DESIGN section 4,
point 3). A claimer that drains a queue knows for itself what it has taken. Under a long transaction elsewhere, which
keeps dead index entries alive, that saves it from walking over seconds of its own work in every claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from . import arrays
from .rows import LeasedJob

#: The parameters of a claim without a trail.
NO_TRAIL = {"trail_queues": arrays.EMPTY, "trail_ranks": arrays.EMPTY, "trail": arrays.EMPTY}


class Trail:
    """The highest position claimed per queue and rank, forgotten every ``max_age`` seconds and whenever jobs run short.

    A job that becomes ready below the trail (released, expired, due, committed late) waits for at most ``max_age``.
    """

    def __init__(self, max_age: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_age = max_age
        self._clock = clock
        self._since = clock()
        self._past: dict[tuple[str, int], int] = {}

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of a claim that starts behind the trail; empty when it should look from the floor."""
        if self._clock() - self._since > self.max_age:
            self._past.clear()
        if not self._past:
            self._since = self._clock()
            return {}
        return {
            "trail_queues": arrays.texts([queue for queue, _ in self._past]),
            "trail_ranks": arrays.integers([rank for _, rank in self._past]),
            "trail": arrays.integers(self._past.values()),
        }

    def note(self, jobs: Sequence[LeasedJob], *, full: bool) -> None:
        """Remember what a claim gave; forget everything when it gave less than was asked for."""
        if not full:
            self._past.clear()
            return
        for job in jobs:
            place = (job.queue, job.rank)
            if job.position > self._past.get(place, -1):
                self._past[place] = job.position

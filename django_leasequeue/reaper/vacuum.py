"""Vacuum, more often than PostgreSQL does it by itself, where dead rows are in the way of claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reaper import Turn

#: Dead rows that are vacuumed: a claim walks over their index entries in about as long as it takes by itself.
DEAD = 100_000
#: Rows of the tables beyond which a vacuum takes too long for the reaper: it reads their indexes whole.
LARGE = 2_000_000


class Vacuum:
    """Vacuums the tables of jobs that wait, when jobs under limits or on retry have left many dead rows there.

    Such jobs are claimed from old places, where a search meets the dead entries of all that went before; no floor
    (``Floors``) lies above those. Autovacuum looks once a minute at most. Dead rows that an old transaction still keeps
    do not count: the next vacuum comes when twice as many are dead.
    """

    def __init__(self) -> None:
        self._kept = 0

    def __call__(self, turn: Turn) -> None:
        dead = self._dead(turn)
        self._kept = min(self._kept, dead)
        if dead >= max(DEAD, 2 * self._kept):
            turn.fetch("vacuum_waiting")
            self._kept = self._dead(turn)

    @staticmethod
    def _dead(turn: Turn) -> int:
        ((dead,),) = turn.fetch("dead_waiting", {"large": LARGE})
        return int(dead)

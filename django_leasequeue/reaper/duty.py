"""A duty: something that the leading reaper does again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from ..engine import ConnectionExecutor
from ..engine.operation import Rows

#: Seconds that one duty may take at a time; what is left is done when the others have had their turn.
BUDGET = 2.0


class OutOfTime(Exception):
    """A duty has used up its turn; what it did so far is done."""


class Turn(ConnectionExecutor):
    """One turn of a duty: runs operations on the reaper's connection until the time is over.

    Every statement of an operation leaves the tables right by itself, so an operation can end between two statements:
    it goes on at the next turn. Attributes: ``connection`` (psycopg, autocommit) and ``alias`` (of the database).
    """

    def __init__(self, connection: psycopg.Connection[Any], alias: str, budget: float = BUDGET) -> None:
        super().__init__(connection)
        self.alias = alias
        self._end = time.monotonic() + budget

    def end(self) -> None:
        """End the turn before its next statement; may be called from another thread."""
        self._end = 0.0

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._end

    def fetch(self, name: str, params: Mapping[str, Any] | None = None) -> Rows:
        """Run one statement and return its rows; raise ``OutOfTime`` if the turn is over."""
        if self.over:
            raise OutOfTime
        return super().fetch(name, params or {})


#: Does a duty's work for one turn. Returns whether there is more to do at once.
Work = Callable[[Turn], "bool | None"]


@dataclass(frozen=True, slots=True)
class Duty:
    """A duty: its name (in logs and settings), what it does, and the seconds between two turns."""

    name: str
    work: Work
    interval: float


_registered: dict[str, Duty] = {}


def register(name: str, work: Work, interval: float) -> None:
    """Give every reaper of this process one more duty; call it in ``AppConfig.ready``.

    Args:
        name: unique; ``LEASEQUEUE["REAPER"]["INTERVALS"]`` may name it.
        work: called with a ``Turn``; returns ``True`` when there is more to do at once. What it raises is logged, and
            stops no other duty. It must bear being broken off between two statements.
        interval: seconds between two turns.

    Raises:
        ValueError: the name is taken by another duty, or the interval is not above 0.
    """
    if not interval > 0:
        raise ValueError(f"the interval of duty {name!r} must be above 0; it is {interval!r}.")
    if name in _registered and _registered[name].work is not work:
        raise ValueError(f"there is a duty {name!r} already.")
    _registered[name] = Duty(name, work, interval)


def registered() -> list[Duty]:
    """Return the duties that were added to the standard ones."""
    return list(_registered.values())

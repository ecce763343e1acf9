"""Transactions that may add jobs which no look at a queue can see yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ..clock import span
from ..operation import Statements


class Writer(NamedTuple):
    """An open transaction that has written jobs or is about to.

    ``pid`` is ``None`` for a prepared transaction, ``name`` its name or the application of a session; ``seconds``: its
    age, ``None`` where that is not visible.
    """

    transaction: str
    pid: int | None
    name: str
    seconds: float | None

    def __str__(self) -> str:
        age = "" if self.seconds is None else f", open for {span(self.seconds)}"
        if self.pid is None:
            return f"the prepared transaction {self.name!r}{age}"
        return f"pid {self.pid} ({self.name or 'no application_name'}{age})"


def writer_steps(*, looking: bool = False, pause: float = 0.0) -> Statements[list[Writer]]:
    """Find the writers, after ``pause`` seconds; with ``looking`` also who may only be about to write."""
    return [Writer(*row) for row in (yield "queue_writers", {"looking": looking, "pause": pause})]


def still_open(known: Collection[str], now: Iterable[Writer]) -> list[str]:
    """Return which of the ``known`` transactions may still be open ``now``."""
    sessions = {writer.transaction for writer in now if writer.pid is not None}
    prepared = {writer.transaction for writer in now if writer.pid is None}
    left = set(known) & (sessions | prepared)
    if left != set(known):  # after a restart of the server a prepared one goes on under another name
        left |= prepared
    return sorted(left)

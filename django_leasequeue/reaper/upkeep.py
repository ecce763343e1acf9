"""Duties that bring jobs on: expired leases, due delayed jobs, messages past their time, bulk operations, floors."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import psycopg

from .. import engine
from ..engine import Operation
from ..engine.dead.bulkoperation import active_operations, fail_operation, run_batch
from ..engine.leases.floor import Proposals
from ..enums import FloorKind
from .duty import Turn

logger = logging.getLogger("django_leasequeue.reaper")

#: Queues of one statement: bounds what one transaction changes.
GROUP = 20
#: A look from the beginning, in case that something came in behind (as with the floors).
FULL_LOOK = timedelta(minutes=1)
#: Between two looks at floors while no job is claimed.
IDLE = timedelta(seconds=1)


#: What passes: others keep a row locked, or it is too much at a time.
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.QueryCanceled)


def _in_groups(turn: Turn, make: Callable[[list[int]], Operation[Any]], rows: Iterable[tuple[Any, ...]]) -> None:
    """Run an operation on the queues of rows, some at a time, each time in another order: a large one starves none."""
    ids = [queue_id for queue_id, *_ in rows]
    random.shuffle(ids)
    for start in range(0, len(ids), GROUP):
        _run(turn, make, ids[start : start + GROUP])


def _run(turn: Turn, make: Callable[[list[int]], Operation[Any]], ids: list[int]) -> None:
    """Run an operation on some queues; one that is busy stops no other."""
    try:
        turn.run(make(ids))
    except _BUSY as error:
        if len(ids) > 1:
            for queue_id in ids:
                _run(turn, make, [queue_id])
        else:
            logger.warning("Queue number %s has to wait for the next turn: %s", ids[0], error)


def sweep(turn: Turn) -> None:
    """Bring back the jobs of expired leases, in every queue that has any."""
    _in_groups(turn, engine.sweep, turn.fetch("due_leases"))


def promote(turn: Turn) -> None:
    """Make due delayed jobs ready, in every queue that has any."""
    _in_groups(turn, engine.promote, turn.fetch("due_delayed"))


def advance(turn: Turn) -> None:
    """Set free what limits and workflows held, where claimers are too busy to do it."""
    _in_groups(turn, engine.advance, turn.fetch("due_turns"))


def expire_workflows(turn: Turn) -> None:
    """Forget workflows that ended long ago."""
    turn.run(engine.expire_workflows())


class Expiry:
    """Removes messages, records and dead jobs past their time.

    Remembers up to when it has removed everything, so that it does not walk over what is dead in the index again and
    again while a long transaction keeps vacuum from cleaning it.
    """

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._full_at: datetime | None = None

    def __call__(self, turn: Turn) -> None:
        full = self._full_at is None or not timedelta(0) <= engine.clock.now() - self._full_at < FULL_LOOK
        if full:
            self._since, self._full_at = None, engine.clock.now()
        since, self._since = self._since, None
        (_, looked_at), *due = turn.fetch("due_expired", {"since": since})
        _in_groups(turn, engine.expire, due)
        # Reached only when nothing is left.
        self._since = looked_at


def expire_results(turn: Turn) -> None:
    """Remove results whose retention is over, and their jobs."""
    while turn.run(engine.expire_results()) == 1_000:
        pass


def mend_floors(turn: Turn) -> None:
    """Lower the floors that stand above something that waits: by the rules there are none."""
    for floor in turn.run(engine.mend_floors()):
        logger.warning(
            "A floor of queue %r (%s, rank %s) stood above a waiting row, at %s above %s: lowered. Did the server's"
            " clock go back, or another server take over?",
            floor.queue,
            FloorKind(floor.kind).label,
            floor.rank,
            floor.value,
            floor.low,
        )


class Floors:
    """Raises the floors: at every turn while jobs are claimed, once a second otherwise."""

    def __init__(self) -> None:
        self._proposals = Proposals()
        self._ready: list[tuple[int, int, int, int]] | None = None
        self._idle_since: datetime | None = None

    def __call__(self, turn: Turn) -> None:
        now = engine.clock.now()
        if self._idle_since is not None and timedelta(0) <= now - self._idle_since < IDLE:
            return
        seen = turn.run(engine.advance_floors(self._proposals))
        ready = [(each.queue_id, each.rank, each.value, each.low) for each in seen if each.kind == FloorKind.READY]
        self._idle_since = now if ready == self._ready else None
        self._ready = ready


def operations(turn: Turn) -> bool:
    """Give each active bulk operation batches, in turn, as long as it may go on; return whether there is more to do."""
    waiting = turn.run(active_operations())
    while waiting and not turn.over:
        waiting = [number for number in waiting if _batch(turn, number)]
    return bool(waiting)


def _batch(turn: Turn, number: int) -> bool:
    """Do a batch; one that the database refuses ends its operation, and stops no other."""
    try:
        return turn.run(run_batch(number))
    except _BUSY as error:
        logger.warning("Bulk operation %s has to wait for the next turn: %s", number, error)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        logger.exception("Bulk operation %s cannot go on", number, extra={"operation": number})
        turn.run(fail_operation(number, f"The database refused a batch: {error}"))
    return False

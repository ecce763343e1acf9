"""The duty that carries out bulk operations on dead letters."""

from __future__ import annotations

import logging

import psycopg

from ..engine.dead.bulkoperation import active_operations, fail_operation, run_batch
from .duty import Turn

logger = logging.getLogger("django_leasequeue.reaper")


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
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.QueryCanceled) as error:
        logger.warning("Bulk operation %s has to wait for the next turn: %s", number, error)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        logger.exception("Bulk operation %s cannot go on", number, extra={"operation": number})
        turn.run(fail_operation(number, f"The database refused a batch: {error}"))
    return False

"""Epochs of the lease log: a restored database begins a new one, so that readers keep their positions.

Readers of the log go by the number of its transactions. A copy of the rows into another cluster (a dump that is
restored, logical replication) brings the numbers of the old cluster, and the new one begins to count far below them. So
the upper bits of each number are the epoch, which the SQL function ``leasequeue_epoch`` names, and a copy begins the
next one: what is written from then on comes after all that was copied. Nothing that is kept changes: events, positions
of consumers, checkpoints, the archive.

A copy is known by the reaper's row in ``leasequeue_timeline``: it names the transaction that wrote it, and PostgreSQL
knows which one did. Files that are taken over (a promoted standby, a base backup) keep that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from ..sql import statement
from .operation import Rows, Statements, operation, steady
from .partitions import LOCK_TIMEOUT_MS
from .runner import ConnectionExecutor

logger = logging.getLogger("django_leasequeue.epoch")

#: Transactions whose events are moved by one statement.
WINDOW = 5_000

Fence = Callable[[ConnectionExecutor], object]


class Begun(NamedTuple):
    """An epoch that has begun: rows of the log that moved into it, and the sequences that were set forward."""

    epoch: int
    moved: int
    sequences: list[str]


class _Look(NamedTuple):
    """The next epoch, and the transactions since the copy, from one up to another."""

    epoch: int
    low: int | None
    high: int
    schema: str


@operation
def above_horizon() -> Statements[int | None]:
    """Count the rows of the log above the horizon of a copied database; ``None``: readers see all of it."""
    ((copied, *_),) = yield "epoch_look", {}
    if copied is False:
        return None
    ((above,),) = yield from steady(_above(), bitmaps=True)
    # Where no reaper has ever noted anything, only events that are yet to come tell it.
    return int(above) if copied or above else None


@operation
def _above() -> Statements[Rows]:
    return (yield "lake/above", {})


def begin(connection: psycopg.Connection[Any], fence: Fence = lambda executor: None) -> Begun | None:
    """Begin an epoch if the rows of the database were copied into it; ``None``: they were not.

    Each transaction begins with ``fence``. ``LockNotAvailable``: a transaction that has written to the log is open; try
    again. ``InsufficientPrivilege``: only the owner of the tables may.
    """
    executor = ConnectionExecutor(connection)
    if executor.run(above_horizon()) is None:
        return None
    look = _look(executor)
    # A copy by logical replication has its sequences at their start.
    sequences = set_sequences(executor)
    moved, low = 0, look.low
    while low is not None and low < look.high:
        with connection.transaction():
            fence(executor)
            moved += _move(executor, look.epoch, low, high := min(low + WINDOW, look.high))
        low = high
    with connection.transaction():
        fence(executor)
        executor.fetch("epoch_pass", {"lock_timeout": LOCK_TIMEOUT_MS})
        connection.execute(statement("ddl/epoch_lock").encode())
        if executor.run(above_horizon()) is None:
            return None  # another process was faster
        now = _look(executor)
        if low is not None:
            moved += _move(executor, now.epoch, low, now.high)
        function, number = sql.Identifier(now.schema, "leasequeue_epoch"), sql.Literal(now.epoch)
        connection.execute(sql.SQL(statement("ddl/epoch_replace")).format(function=function, epoch=number))
        executor.fetch("epoch_note", {})
    logger.warning(
        "This database was restored from a copy: epoch %s of the lease log has begun. Readers go on where they stand."
        " %s of its rows were written here before, and come after all that was copied.",
        now.epoch,
        moved,
    )
    return Begun(now.epoch, moved, sequences)


def set_sequences(executor: ConnectionExecutor) -> list[str]:
    """Set sequences forward that stand behind their columns; return their names."""
    behind = executor.fetch("sequences_behind", {})
    for sequence, highest, _ in behind:
        executor.fetch("sequence_set", {"sequence": sequence, "highest": highest})
    return [sequence for sequence, *_ in behind]


def _look(executor: ConnectionExecutor) -> _Look:
    return _Look._make(executor.fetch("epoch_look", {})[0][1:])


def _move(executor: ConnectionExecutor, epoch: int, low: int, high: int) -> int:
    executor.fetch("epoch_pass", {"lock_timeout": LOCK_TIMEOUT_MS})
    return int(executor.fetch("epoch_move", {"epoch": epoch, "low": low, "high": high})[0][0])

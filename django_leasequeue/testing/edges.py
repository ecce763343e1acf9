"""The edge of a job in a test: what it leaves open or broken ends with it, and the test's own transaction stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from ..exceptions import TransactionLeftOpen
from ..worker.control import JobControl
from ..worker.edge import drop, error_of, open_on


@contextmanager
def guarded(control: JobControl) -> Iterator[None]:
    """Fail a job that leaves a transaction open, as a worker does; the test's own transaction stays."""
    depths = {wrapper: len(wrapper.atomic_blocks) for wrapper in connections.all(initialized_only=True)}
    found: dict[str, str] = {}
    try:
        yield
    finally:
        for wrapper in connections.all(initialized_only=True):
            depth = depths.get(wrapper, 0)
            if not depth and (left := open_on(wrapper)):
                found[wrapper.alias] = left
                drop(wrapper)
            while len(wrapper.atomic_blocks) > depth:
                found[wrapper.alias] = "an open atomic()"
                wrapper.atomic_blocks[-1].__exit__(TransactionLeftOpen, None, None)
    if error := error_of(control, found):
        raise error


@contextmanager
def mended() -> Iterator[None]:
    """Let a job's database error break only the job, as in a worker, and not the test's transaction."""
    with ExitStack() as stack:
        for alias in connections:
            connection = connections[alias]
            if connection.connection is not None and connection.in_atomic_block and connection.vendor == "postgresql":
                stack.enter_context(_savepoint(connection))
        yield


@contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Roll a job's writes back only if it broke the transaction: a worker is in autocommit mode."""
    mark = connection.savepoint()
    assert mark is not None, "there is one in an atomic block"
    try:
        yield
    except BaseException:
        if _broken(connection):
            connection.savepoint_rollback(mark)
            connection.set_rollback(False)
        raise
    else:
        # A job that swallowed a database error outside its own atomic block has broken the transaction: the next
        # statement raises.
        if not _broken(connection):
            connection.savepoint_commit(mark)


def _broken(connection: BaseDatabaseWrapper) -> bool:
    return bool(connection.connection.info.transaction_status == TransactionStatus.INERROR)

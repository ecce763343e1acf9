"""A connection that comes back: each of a worker's own threads has one."""

from __future__ import annotations

import logging
import random
import threading
from typing import Any, TypeVar

import psycopg

from ..engine import ConnectionExecutor, Operation, pool
from .statements import name_session

T = TypeVar("T")

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds between attempts: doubled from, up to, and spread by a random half.
FIRST_RETRY, LAST_RETRY = 0.1, 5.0

#: Classes of SQLSTATE that pass by themselves: connection, rollback (deadlock), resources, operator, system;
#: and the codes of a server that is read-only until it is promoted, and of a lock that is not to be had.
_PASSING = ("08", "40", "53", "57", "58")
_PASSING_CODES = ("25006", "55P03")


class LinkClosed(Exception):
    """The link was told to give up before the database answered."""


def passes(error: psycopg.Error) -> bool:
    """Whether an error is one of the connection or the moment, not of what was asked."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state[:2] in _PASSING or state in _PASSING_CODES


class Link:
    """Runs operations on a connection of its own, and again after the connection was lost, until it is given up.

    For one thread; ``give_up`` and ``cancel`` may be called from others.

    Args:
        using: alias of the database.
        purpose: what the log and pg_stat_activity call it.
        node: the worker's name.
    """

    def __init__(self, using: str, purpose: str, node: str) -> None:
        self.using = using
        self.purpose = purpose
        self._node = node
        #: Times that the connection was lost.
        self.losses = 0
        #: Whether it is trying to reach the database again.
        self.retrying = False
        self._connection: psycopg.Connection[Any] | None = None
        self._executor: ConnectionExecutor | None = None
        self._given_up = threading.Event()

    @property
    def up(self) -> bool:
        """Whether there is a connection, as far as we know."""
        return self._connection is not None

    def give_up(self) -> None:
        """Make attempts that wait for the database end with ``LinkClosed``."""
        self._given_up.set()

    def cancel(self) -> None:
        """Ask the database to break off the statement that runs now, if one does."""
        connection = self._connection
        if connection is not None:
            try:
                connection.cancel_safe(timeout=5)
            except psycopg.Error as error:
                logger.debug("Cancelling failed: %s", error)

    def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end, however often the connection is lost.

        An operation whose answer was lost with the connection is run again: operations on leases bear that.

        Raises:
            LinkClosed: the link was given up.
            psycopg.Error: of the operation itself.
        """
        retry = FIRST_RETRY
        while True:
            try:
                answer = self.attempt(operation)
            except psycopg.Error as error:
                if not passes(error):
                    raise
                logger.warning(
                    "Database not reached, trying again",
                    extra={"purpose": self.purpose, "error": str(error).strip(), "seconds": round(retry, 1)},
                )
            else:
                self.retrying = False
                return answer
            self.retrying = True
            if self._given_up.wait(retry * random.uniform(0.5, 1)):
                raise LinkClosed
            retry = min(retry * 2, LAST_RETRY)

    def attempt(self, operation: Operation[T]) -> T:
        """Run an operation once.

        Raises:
            psycopg.Error: anything, also that there is no connection.
        """
        if self._executor is None:
            self._connection = pool.connect(self.using)
            self._executor = ConnectionExecutor(self._connection)
            if pool.prepares(self.using):  # not a pooler's, which others use next
                self._executor.run(name_session(f"leasequeue {self.purpose} {self._node}"))
        try:
            return self._executor.run(operation)
        except psycopg.Error as error:
            if passes(error) or (self._connection is not None and self._connection.closed):
                self.losses += 1
                self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next operation opens another."""
        connection, self._connection, self._executor = self._connection, None, None
        if connection is not None:
            connection.close()

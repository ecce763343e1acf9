"""A connection that comes back: each of a worker's own threads has one."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import TypeVar

import psycopg

from .. import conf
from ..engine import ConnectionExecutor, Operation, pool
from ..engine.outage import FIRST_RETRY, LAST_RETRY, Outage, lost, passes, read_only
from .statements import check_writable, name_session

T = TypeVar("T")

logger = logging.getLogger("django_leasequeue.worker")


#: Seconds after which an attempt that the database refused is forgotten when others succeed.
SETTLED = 6.0


class LinkClosed(Exception):
    """The link was told to give up before the database answered."""


class Unreached(Exception):
    """The database was not reached, and this link does not wait for it."""


class DatabaseLink:
    """Runs operations on a connection of its own, and again after the connection was lost, until it is given up.

    For one thread; ``give_up`` and ``cancel`` may be called from others.

    Args:
        using: alias of the database.
        purpose: what the log and pg_stat_activity call it.
        node: the worker's name.
        outage: what says that the database is away.
        waits: whether ``run`` tries until the database answers; otherwise it raises ``Unreached``.
    """

    def __init__(self, using: str, purpose: str, node: str, outage: Outage, *, waits: bool = True) -> None:
        self.using = using
        self.purpose = purpose
        self._node = node
        self._outage = outage
        self._waits = waits
        #: Times that the connection was lost.
        self.losses = 0
        #: Whether it is trying to reach the database again.
        self.retrying = False
        #: Seconds that a statement may take.
        self.patience: float | None = conf.settings.STATEMENT_TIMEOUT or None
        #: When the operation that was answered last was sent (monotonic).
        self.asked_at = 0.0
        self._connection: pool.Connection | None = None
        self._executor: ConnectionExecutor | None = None
        #: When an attempt failed last (monotonic), whether the server was read-only, and whether one success shows that
        #: this is over.
        self._missed_at = 0.0
        self._read_only = False
        self._sure = True
        #: Whether the session has its name.
        self._named = True
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
            Unreached: the first attempt failed, of a link that does not wait.
            psycopg.Error: of the operation itself.
        """
        retry = FIRST_RETRY
        while True:
            had_one = self.up
            try:
                answer = self.attempt(operation)
            except psycopg.Error as error:
                if not passes(error):
                    raise
                self._missed(error, had_one)
                if not self._waits:
                    raise Unreached from error
            else:
                # A server whose disk is full answers many statements, and will refuse the next one.
                if self.retrying and (self._sure or time.monotonic() - self._missed_at > SETTLED):
                    self.retrying = False
                    self._outage.ends(self)
                return answer
            if self._given_up.wait(retry * random.uniform(0.5, 1)):
                raise LinkClosed
            retry = min(retry * 2, LAST_RETRY)

    def _missed(self, error: psycopg.Error, had_one: bool) -> None:
        """Note that an attempt failed. A connection that is lost and made again at once is not worth a warning."""
        self._read_only, self._missed_at = read_only(error), time.monotonic()
        self._sure = self._read_only or lost(error)
        if self.retrying or not had_one or not lost(error):
            self._outage.begins(self, error)
        else:
            logger.debug("Connection lost", extra={"purpose": self.purpose, "error": str(error).strip()})
        self.retrying = True

    def attempt(self, operation: Operation[T]) -> T:
        """Run an operation once.

        Raises:
            psycopg.Error: anything, also that there is no connection.
        """
        if self._executor is None:
            self._connection = pool.connect(self.using, patience=conf.settings.STATEMENT_TIMEOUT or None)
            self._executor = ConnectionExecutor(self._connection)
            self._named = not pool.prepares(self.using)  # not a pooler's session, which others use next
        assert self._connection is not None
        try:
            if not self._named:
                self._executor.run(name_session(f"leasequeue {self.purpose} {self._node}"))
                self._named = True
            if self._read_only:
                self._executor.run(check_writable())
                self._read_only = False
            self._connection.patience = self.patience
            self.asked_at = time.monotonic()
            return self._executor.run(operation)
        except psycopg.Error as error:
            if passes(error) or self._connection.closed:
                self.losses += 1
                self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next operation opens another."""
        connection, self._connection, self._executor = self._connection, None, None
        if connection is not None:
            connection.close()

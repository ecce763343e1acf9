"""A connection that reconnects, for each of a worker's own threads; and statements that only workers run."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import psycopg

from .. import conf
from ..engine import ConnectionExecutor, Operation, arrays, codec, pool
from ..engine.limits import MAX_BATCH
from ..engine.operation import Statements, operation
from ..engine.outage import FIRST_RETRY, LAST_RETRY, Outage, lost, passes, read_only

T = TypeVar("T")

logger = logging.getLogger("django_leasequeue.worker")


#: Seconds of success after which a refused attempt is forgotten.
SETTLED = 6.0


class LinkClosed(Exception):
    """The link was asked to give up before the database answered."""


class Unreached(Exception):
    """The database does not answer, and this link does not wait for it."""


class DatabaseLink:
    """Runs operations on its own connection, and repeats them after the connection was lost, until ``give_up``.

    For one thread, except ``give_up`` and ``cancel``. Without ``waits``, ``run`` raises ``Unreached`` when the database
    does not answer.
    """

    def __init__(self, using: str, purpose: str, node: str, outage: Outage, *, waits: bool = True) -> None:
        self.using = using
        self.purpose = purpose
        self._node = node
        self._outage = outage
        self._waits = waits
        self.losses = 0
        self.retrying = False
        #: Seconds that a statement may take.
        self.patience: float | None = conf.settings.STATEMENT_TIMEOUT or None
        #: When the last answered operation was sent (monotonic).
        self.asked_at = 0.0
        self._connection: pool.Connection | None = None
        self._executor: ConnectionExecutor | None = None
        #: When an attempt failed last (monotonic), whether the server was read-only, and whether one success ends that.
        self._missed_at = 0.0
        self._read_only = False
        self._sure = True
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """End attempts that wait for the database with ``LinkClosed``."""
        self._given_up.set()

    def cancel(self) -> None:
        """Ask the database to cancel the current statement, if there is one."""
        connection = self._connection
        if connection is not None:
            try:
                connection.cancel_safe(timeout=5)
            except psycopg.Error as error:
                logger.debug("Cancelling failed: %s", error)

    def run(self, operation: Operation[T]) -> T:
        """Run an operation; repeat it if the connection was lost (operations on leases may be repeated)."""
        retry = FIRST_RETRY
        while True:
            had_one = self._connection is not None
            try:
                answer = self.attempt(operation)
            except psycopg.Error as error:
                if not passes(error):
                    raise
                self._missed(error, had_one)
                if not self._waits:
                    raise Unreached from error
            else:
                # A server with a full disk answers many statements and refuses the next one.
                if self.retrying and (self._sure or time.monotonic() - self._missed_at > SETTLED):
                    self.retrying = False
                    self._outage.ends(self)
                return answer
            if self._given_up.wait(retry * random.uniform(0.5, 1)):
                raise LinkClosed
            retry = min(retry * 2, LAST_RETRY)

    def _missed(self, error: psycopg.Error, had_one: bool) -> None:
        """Note a failed attempt. A connection that is lost and made again at once deserves no warning."""
        self._read_only, self._missed_at = read_only(error), time.monotonic()
        self._sure = self._read_only or lost(error)
        if self.retrying or not had_one or not lost(error):
            self._outage.begins(self, error)
        else:
            logger.debug("Connection lost", extra={"purpose": self.purpose, "error": str(error).strip()})
        self.retrying = True

    def attempt(self, operation: Operation[T]) -> T:
        if self._executor is None:
            patience = conf.settings.STATEMENT_TIMEOUT or None
            name = f"leasequeue {self.purpose} {self._node}"
            self._connection = pool.connect(self.using, patience=patience, name=name)
            self._executor = ConnectionExecutor(self._connection)
        assert self._connection is not None
        try:
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
        connection, self._connection, self._executor = self._connection, None, None
        if connection is not None:
            connection.close()


@operation
def until_due(queue_ids: Sequence[int]) -> Statements[tuple[float | None, float | None]]:
    """Read the seconds until the first delayed job is due, and until the first lease expires."""
    rows = yield "worker_due", {"queues": arrays.integers(queue_ids)}
    ((due, expires),) = rows
    return due, expires


@operation
def check_writable() -> Statements[None]:
    """Raise ``psycopg.errors.ReadOnlySqlTransaction`` if the server is read-only, as a write would."""
    ((writable,),) = yield "writable", {}
    if not writable:
        raise psycopg.errors.ReadOnlySqlTransaction("the server is read-only")


@operation
def read_strays(
    queue_ids: Sequence[int] | None, node: str, known: Sequence[int], size: int = MAX_BATCH
) -> Statements[list[tuple[int, int]]]:
    """Read (seq, token) of a node's jobs whose token is not ``known``: the answer of their claim was lost."""
    queues = None if queue_ids is None else arrays.integers(queue_ids)
    rows = yield "worker_strays", {"queues": queues, "node": node, "known": arrays.integers(known), "size": size}
    return [(seq, token) for seq, token in rows]


@operation
def write_presence(
    *, queues: Sequence[str], running: list[dict[str, Any]], info: dict[str, Any], **columns: Any
) -> Statements[bool]:
    """Write the worker's row; return whether an operator asked it to stop."""
    values = {"queues": arrays.texts(queues), "running": codec.dumps(running), "info": codec.dumps(info)}
    rows = yield "worker_seen", {**columns, **values}
    return rows[0][0] is not None


@operation
def remove_presence(node: str) -> Statements[None]:
    """Remove the worker's row."""
    yield "worker_gone", {"node": node}

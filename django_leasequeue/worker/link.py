"""A connection that comes back: each of a worker's own threads has one. And the statements that only workers run.

A statement may be primed: built before its thread sleeps, and sent by the thread that hears why it should wake up.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from .. import conf
from ..engine import ConnectionExecutor, Operation, arrays, codec, pool
from ..engine.limits import MAX_BATCH
from ..engine.operation import Steps, operation
from ..engine.outage import FIRST_RETRY, LAST_RETRY, Outage, lost, passes, read_only
from ..engine.queues.queues import make_declared
from ..exceptions import QueueNotFound
from ..notify.alarms import Alarm

T = TypeVar("T")

logger = logging.getLogger("django_leasequeue.worker")


#: Seconds after which an attempt that the database refused is forgotten when others succeed.
SETTLED = 6.0


class LinkClosed(Exception):
    """The link was told to give up before the database answered."""


class Unreached(Exception):
    """The database was not reached, and this link does not wait for it."""


class NotAnnounced(Exception):
    """The statement was not sent: time was over, or (``woken``) the thread was woken otherwise, or too early."""

    def __init__(self, woken: bool) -> None:
        super().__init__(woken)
        self.woken = woken


class Primed:
    """Holds a statement back until ``send``, for so many seconds at most.

    What a thread would do between waking up and sending takes 0.2 to 0.3 ms in an idle process, whose caches others
    have used. So the listener's thread sends, and the owner wakes up while PostgreSQL works.
    """

    def __init__(self, alarm: Alarm, seconds: float) -> None:
        self._alarm, self._seconds = alarm, seconds
        self._lock = threading.Lock()
        self._send: Callable[[], None] | None = None
        self._error: Exception | None = None
        #: When it was sent (monotonic).
        self.at = 0.0

    def hold(self, send: Callable[[], None]) -> None:
        """Sleep until another thread has called ``send``; ``NotAnnounced`` if none has."""
        self._send = send
        woken = self._alarm.wait(self._seconds)
        with self._lock:
            if self._send is not None:
                self._send = None
                raise NotAnnounced(woken)
        if self._error is not None:
            raise self._error

    def send(self) -> None:
        """Send it now, from any thread, if it is held; does not block."""
        with self._lock:
            send, self._send = self._send, None
            if send is None:
                return
            self.at = time.monotonic()
            try:
                send()
            except Exception as error:  # noqa: BLE001  (the owner raises it, whose statement it is)
                self._error = error


class DatabaseLink:
    """Runs operations on a connection of its own, and again after the connection was lost, until it is given up.

    For one thread; ``give_up`` and ``cancel`` may be called from others. If it does not wait, ``run`` raises
    ``Unreached`` when the database does not answer.
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
        #: When the operation that was answered last was sent (monotonic).
        self.asked_at = 0.0
        self._connection: pool.Connection | None = None
        self._executor: ConnectionExecutor | None = None
        #: When an attempt failed last (monotonic), whether the server was read-only, and whether one success shows that
        #: this is over.
        self._missed_at = 0.0
        self._read_only = False
        self._sure = True
        self._given_up = threading.Event()

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

    def run(self, operation: Operation[T], primed: Primed | None = None) -> T:
        """Run an operation to its end, again if its answer was lost with the connection: those on leases bear that.

        ``primed`` holds its first statement back; what is run again is sent at once.
        """
        retry = FIRST_RETRY
        while True:
            had_one = self._connection is not None
            try:
                answer = self.attempt(operation, primed)
            except psycopg.Error as error:
                primed = None
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

    def attempt(self, operation: Operation[T], primed: Primed | None = None) -> T:
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
            self._executor.hold = None if primed is None else primed.hold
            self.asked_at = time.monotonic()
            answer = self._executor.run(operation)
            if primed is not None:
                self.asked_at = primed.at
            return answer
        except psycopg.Error as error:
            if passes(error) or self._connection.closed:
                self.losses += 1
                self.close()
            raise

    def close(self) -> None:
        connection, self._connection, self._executor = self._connection, None, None
        if connection is not None:
            connection.close()


#: Queues that a worker of all queues takes at most.
MAX_QUEUES = 10_000


@operation
def read_queues(project: str, names: Sequence[str] | None) -> Steps[dict[str, int]]:
    """Read the ids of queues by name; ``None`` for all of the project. Names that are no queue are left out."""
    wanted = None if names is None else arrays.texts(names)
    rows = yield "worker_queues", {"project": project, "names": wanted, "size": MAX_QUEUES}
    return {name: queue_id for queue_id, name in rows}


@operation
def make_queues(project: str, names: Sequence[str], using: str | None = None) -> Steps[None]:
    """Make queues that are not there, as their first job would; without ``AUTO_CREATE`` only the declared ones."""
    for name in names:
        with suppress(QueueNotFound):
            yield from make_declared(project, name, using=using)


@operation
def until_due(queue_ids: Sequence[int]) -> Steps[tuple[float | None, float | None]]:
    """Read how many seconds are left until the first delayed job is due, and until the first lease expires."""
    rows = yield "worker_due", {"queues": arrays.integers(queue_ids)}
    ((due, expires),) = rows
    return due, expires


@operation
def check_writable() -> Steps[None]:
    """Raise ``psycopg.errors.ReadOnlySqlTransaction`` where nothing can be written, as what writes would."""
    ((writable,),) = yield "worker_writable", {}
    if not writable:
        raise psycopg.errors.ReadOnlySqlTransaction("the server is read-only")


@operation
def read_strays(
    queue_ids: Sequence[int] | None, node: str, known: Sequence[int], size: int = MAX_BATCH
) -> Steps[list[tuple[int, int]]]:
    """Read (seq, token) of jobs that a node holds whose token is none of the ``known``: their answer never came."""
    queues = None if queue_ids is None else arrays.integers(queue_ids)
    rows = yield "worker_strays", {"queues": queues, "node": node, "known": arrays.integers(known), "size": size}
    return [(seq, token) for seq, token in rows]


@operation
def write_presence(
    *, queues: Sequence[str], running: list[dict[str, Any]], info: dict[str, Any], **columns: Any
) -> Steps[bool]:
    """Write the worker's row; return whether an operator asked it to stop."""
    values = {"queues": arrays.texts(queues), "running": codec.dumps(running), "info": codec.dumps(info)}
    rows = yield "worker_seen", {**columns, **values}
    return rows[0][0] is not None


@operation
def remove_presence(node: str) -> Steps[None]:
    """Remove the worker's row."""
    yield "worker_gone", {"node": node}

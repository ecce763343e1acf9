"""The threads that extend the leases of all ``with Heartbeat(...)`` blocks of a process, one a database."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from .. import engine
from ..conf import process
from ..engine import pool
from ..engine.limits import MAX_BATCH
from ..engine.outage import Outage, passes, read_only

if TYPE_CHECKING:
    from .heartbeat import Heartbeat

logger = logging.getLogger("django_leasequeue")

_IDLE = psycopg.pq.TransactionStatus.IDLE

#: Seconds between tries while the database is away.
RETRY = 1.0
#: Seconds that one statement may take: a sixth of the lease, within these. Then the connection is broken off.
SHORTEST, LONGEST = 1.0, 5.0


class HeartbeatThread:
    """The thread that beats for all ``with`` blocks of this process on one database."""

    def __init__(self, using: str) -> None:
        self.using = using
        self._lock = threading.Lock()
        self._due: dict[Heartbeat, float] = {}
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: pool.Connection | None = None
        self._outage = Outage(logger, "Heartbeats fail, trying again", "Heartbeats go on", database=using)

    def add(self, heart: Heartbeat) -> None:
        with self._lock:
            self._due[heart] = time.monotonic() + heart.first_pause
            self._start()
        self._changed.set()

    def _start(self, after: float = 0.0) -> None:
        """Start the thread unless it runs."""
        if self._thread is None or not self._thread.is_alive():
            name = f"leasequeue-beat-{self.using}"
            self._thread = threading.Thread(target=self._run, args=(after,), name=name, daemon=True)
            self._thread.start()

    def remove(self, heart: Heartbeat) -> None:
        with self._lock:
            self._due.pop(heart, None)
        self._outage.ends(heart)
        self._changed.set()

    # What follows runs in the thread.

    def _run(self, after: float) -> None:
        time.sleep(after)
        try:
            while (pause := self._pause()) is not None:
                self._changed.wait(pause)
                self._changed.clear()
                self._beat(self._take_due())
        except BaseException:
            logger.exception("The thread of the heartbeats broke: another one begins")
            with self._lock:
                self._thread = None
                self._disconnect()
                with suppress(RuntimeError):  # the interpreter ends
                    self._start(RETRY)

    def _pause(self) -> float | None:
        """Return the seconds until the next beat; ``None`` without leases, which ends the thread."""
        with self._lock:
            if not self._due:
                self._thread = None
                self._disconnect()
                return None
            return max(0.0, min(self._due.values()) - time.monotonic())

    def _take_due(self) -> list[Heartbeat]:
        now = time.monotonic()
        with self._lock:
            lost = [heart for heart in self._due if heart.lost]
            for heart in lost:
                del self._due[heart]
                self._outage.ends(heart)
            # Those that come next anyway share the statement.
            due = [heart for heart, at in self._due.items() if at <= now + heart.interval / 10]
            if not any(self._due[heart] <= now for heart in due):
                return []
            for heart in due:
                self._due[heart] = now + heart.interval
        return due

    def _beat(self, due: list[Heartbeat]) -> None:
        """Beat group by group: an error of one group leaves the others alone."""
        groups = list(_alike(due))
        while groups:
            try:
                connection = self._connected()
            except Exception as error:  # noqa: BLE001  (whatever it is, it may pass)
                self._failed(groups, error)
                return
            group = groups.pop()
            try:
                connection.patience = min(LONGEST, max(SHORTEST, group[0].lease_ms / 6000))
                self._extend(group, connection)
                for heart in group:
                    heart.apart = False
                    self._outage.ends(heart)
            except Exception as error:  # noqa: BLE001  (whatever it is: the leases have to be kept)
                if read_only(error):
                    # This may not be the server to beat on any more.
                    self._disconnect()
                    self._failed([group, *groups], error)
                    return
                for heart in group:
                    heart.apart = True
                if connection.info.transaction_status != _IDLE:
                    self._disconnect()
                self._failed([group], error)

    def _connected(self) -> pool.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = pool.connect(self.using, patience=LONGEST)
            if pool.prepares(self.using):  # not a pooler's, which others use next
                # While a beat waits for a job that a transaction has locked, others wait for theirs.
                self._connection.execute("SET lock_timeout = '500ms'")
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _extend(self, hearts: list[Heartbeat], connection: pool.Connection) -> None:
        first, sent = hearts[0], time.monotonic()
        settled = engine.ConnectionExecutor(connection).run(
            engine.extend(
                [heart.job.seq for heart in hearts],
                first.job.node,
                first.lease_ms,
                tokens=[heart.job.token for heart in hearts],
                project=first.queue.project,
            )
        )
        for heart in hearts:
            deadline = settled.deadlines.get(heart.job.seq)
            if deadline is None:
                self.remove(heart)
                heart.beaten(None, sent)
            else:
                heart.beaten(heart.job.extended(deadline), sent)

    def _failed(self, groups: list[list[Heartbeat]], error: Exception) -> None:
        now = time.monotonic()
        with self._lock:
            for heart in [heart for group in groups for heart in group if heart in self._due]:
                self._due[heart] = now + min(heart.interval, RETRY)
                self.failed(heart, error)

    def failed(self, heart: Heartbeat, error: Exception) -> None:
        """Log a failed beat, once for all; log an error that does not pass by itself with its traceback."""
        self._outage.begins(heart, error)
        if not passes(error):
            logger.error("A heartbeat failed", exc_info=error, extra={"seq": heart.job.seq})

    def succeeded(self, heart: Heartbeat) -> None:
        self._outage.ends(heart)


def _alike(hearts: Iterable[Heartbeat]) -> Iterator[list[Heartbeat]]:
    """Yield the heartbeats that one statement can extend: one holder, one tenant, one length; a job at most once."""
    groups: dict[tuple[str, str, int, Heartbeat | None], list[dict[int, Heartbeat]]] = {}
    for heart in hearts:
        alone = heart if heart.apart else None
        parts = groups.setdefault((heart.job.node, heart.queue.project, heart.lease_ms, alone), [])
        seq = heart.job.seq
        part = next((part for part in parts if seq not in part and len(part) < MAX_BATCH), None)
        if part is None:
            part = {}
            parts.append(part)
        part[seq] = heart
    for parts in groups.values():
        for part in parts:
            yield list(part.values())


_threads: process.Shared[str, HeartbeatThread] = process.Shared()


def get_heartbeat_thread(using: str) -> HeartbeatThread:
    """Return this process's thread for a database."""
    return _threads.get(using, HeartbeatThread)

"""Leader election: of all reapers of a database one leads for a term, as long as it raises a counter in time."""

from __future__ import annotations

import json
import logging
import os
import secrets
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from .. import conf
from ..engine import ConnectionExecutor, pool
from ..engine.operation import Rows
from ..engine.runner import Executor
from ..notify.session import WakeUpPipe

logger = logging.getLogger("django_leasequeue.reaper")

#: Seconds between two beats; seconds without one after which another reaper takes over; seconds for which a beat
#: entitles a leader. Each side uses its own monotonic clock: the database's may be set.
BEAT, SILENT, VALID = 3.0, 10.0, 8.0
#: Seconds that the server gets for a beat: less than the time until the next reaper takes over.
PATIENCE = 4.0
#: Seconds after the last beat until status and admin show no leader.
ABSENT = 15.0
#: Limits of a fenced transaction, which delays a new term: milliseconds between two statements, and of one.
IDLE_MS, STATEMENT_MS = 4_000, 8_000


class NotLeading(Exception):
    """This reaper no longer leads: its write is refused."""


class Term(NamedTuple):
    """The term of a leader: its number, and the leader."""

    number: int
    holder: str

    def fence(self, executor: Executor, statement_ms: int = STATEMENT_MS) -> None:
        """Let no other term begin until the executor's transaction ends; ``NotLeading``: one has begun."""
        limits = {"idle": IDLE_MS, "statement": statement_ms}
        if not executor.fetch("reaper_fence", {"term": self.number, "holder": self.holder, **limits}):
            raise NotLeading(f"Term {self.number} of the reapers is over.")


class Leader(NamedTuple):
    """The row of the leader: its last beat was ``silent`` seconds ago, with the state of its ``duties``."""

    term: int
    beat: int
    holder: str
    address: str
    since: Any
    silent: float
    duties: list[dict[str, Any]]

    @property
    def leads(self) -> bool:
        # ``abs``: the server's clock may have been set back since the beat.
        return bool(self.holder) and abs(self.silent) < ABSENT

    @classmethod
    def of(cls, rows: Rows) -> Leader | None:
        """Return the leader in the rows of ``reaper_look``, unless its last beat is too old."""
        found = next((cls._make((*row[:6], json.loads(row[6]))) for row in rows), None)
        return found if found is not None and found.leads else None


class Election:
    """One candidate, on a connection of its own. For one thread, but for the wake-up and ``valid``.

    It holds no lock and needs no session: behind a pooler in transaction mode, only a resignation is noticed later. It
    connects as ``DATABASES`` says, never by ``LISTEN_DSN``: ``fence`` must read the row that it writes.
    """

    def __init__(self, using: str, wakeup: WakeUpPipe) -> None:
        self._using = using
        self._wakeup = wakeup
        self._listens = pool.prepares(using)
        self._connection: psycopg.Connection[Any] | None = None
        self._holder = f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(4)}"
        #: The last seen term and beat, and since when they have not changed (monotonic).
        self.seen: tuple[int, int] | None = None
        self._seen_at = 0.0
        self._valid_until = 0.0
        self.term: Term | None = None

    @property
    def leading(self) -> bool:
        return self.term is not None

    @property
    def valid(self) -> bool:
        """Whether this reaper leads, and no other can have taken over by now."""
        return self.term is not None and time.monotonic() < self._valid_until

    @property
    def due(self) -> bool:
        """Whether it is time for a beat."""
        return time.monotonic() > self._valid_until - VALID + BEAT

    def lead(self) -> bool:
        """Begin a term if there is no leader, or a silent one; return whether this reaper leads."""
        if self.term is not None:
            return True
        asked_at = time.monotonic()
        leader = next(iter(self._fetch("reaper_look")), None)
        term, beat, holder = (0, 0, "") if leader is None else leader[:3]
        if holder == self._holder:  # the connection broke, and no other reaper has taken over
            self.term = Term(term, holder)
            self.beat()
            return True
        if (term, beat) != self.seen:
            self.seen, self._seen_at = (term, beat), time.monotonic()
        if holder and time.monotonic() - self._seen_at < SILENT:
            return False
        for (number,) in self._fetch("reaper_lead", holder=self._holder, term=term, beat=beat):
            if holder:
                logger.warning("The reaper %s was silent for %.0f s: another takes over", holder, SILENT)
            self.term, self._valid_until = Term(number, self._holder), asked_at + VALID
            logger.info("This reaper leads now", extra={"database": self._using, "term": number})
        return self.term is not None

    def beat(self, duties: Sequence[dict[str, Any]] = ()) -> None:
        """Write a beat with the state of the duties; ``NotLeading``: another reaper has taken over."""
        assert self.term is not None
        asked_at = time.monotonic()
        said = {"term": self.term.number, "holder": self.term.holder, "duties": json.dumps(duties)}
        if not self._fetch("reaper_beat", **said):
            self.term = None
            raise NotLeading("Another reaper has taken over: this one was silent for too long.")
        self._valid_until = asked_at + VALID

    @property
    def pause(self) -> float:
        """Seconds until a candidate checks again."""
        left = self._seen_at + SILENT - time.monotonic()
        return max(0.05, min(conf.settings.REAPER.RETRY, left)) if left > 0 else conf.settings.REAPER.RETRY

    def wait(self, timeout: float) -> None:
        """Wait until a leader resigns, ``wakeup`` rings, or the timeout."""
        connection = self._connection
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakeup.reading, selectors.EVENT_READ)
            if connection is not None and self._listens:
                selector.register(connection.fileno(), selectors.EVENT_READ)
            for key, _ in selector.select(timeout):
                if key.fd == self._wakeup.reading:
                    self._wakeup.clear()
                    continue
                assert connection is not None
                try:
                    connection.pgconn.consume_input()
                except psycopg.OperationalError:
                    connection.close()
                    raise
                while connection.pgconn.notifies() is not None:
                    pass

    def resign(self) -> None:
        """Stop leading at once, and close the connection."""
        term, self.term = self.term, None
        if term is not None:
            with suppress(psycopg.Error):
                self._fetch("reaper_resign", term=term.number, holder=term.holder)
            logger.info("This reaper leads no longer", extra={"database": self._using, "term": term.number})
        self.drop()

    def drop(self) -> None:
        """Close the connection: this reaper does not lead until it has read the row again."""
        self.term = None
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _fetch(self, name: str, **params: Any) -> Rows:
        if self._connection is None:
            self._connection = self._connect()
        return ConnectionExecutor(self._connection).fetch(name, params)

    def _connect(self) -> psycopg.Connection[Any]:
        connection = pool.connect(self._using)
        connection.patience = PATIENCE
        if self._listens:
            executor = ConnectionExecutor(connection)
            executor.fetch("reaper_session", {})
            # Before the first check, so that a resignation after it is noticed.
            ((channel,),) = executor.fetch("reaper_channel", {})
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        return connection

"""Leader election: of all reapers of a database exactly one leads, by an advisory lock on a connection of its own."""

from __future__ import annotations

import logging
import selectors
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from .. import conf
from ..engine import ConnectionExecutor, pool
from ..notify.session import WakeUpPipe
from ..sql import statement

logger = logging.getLogger("django_leasequeue.reaper")

#: Advisory lock of the leader, in a space of its own (queues have 1280657731).
LOCK = {"space": 1280657732, "number": 1}
#: Seconds after which a server that does not answer a statement is given up (it ends one itself after ten minutes).
SILENCE = 660.0
#: Where a leader that stops tells the others.
CHANNEL = "leasequeue_reaper"


class Election:
    """One candidate. For one thread, but for the wake-up.

    The lock is held by the session, so it is free the moment the connection is gone, however the process ended. Behind
    a pooler in transaction mode (the alias says ``DISABLE_SERVER_SIDE_CURSORS``, and there is no ``LISTEN_DSN``) a
    session is not ours: then an open transaction holds it, on a connection beside the one for the work. It has no
    snapshot and no transaction id, so it holds nothing back.
    """

    def __init__(self, using: str, wakeup: WakeUpPipe) -> None:
        self._using = using
        self._wakeup = wakeup
        self._dsn = conf.settings.LISTEN_DSN or None
        self._pooled = not self._dsn and not pool.prepares(using)
        self._candidate: psycopg.Connection[Any] | None = None
        self._work: psycopg.Connection[Any] | None = None
        self.leading = False

    @property
    def connection(self) -> psycopg.Connection[Any]:
        assert self._work is not None
        return self._work

    @property
    def _session(self) -> psycopg.Connection[Any]:
        assert self._candidate is not None
        return self._candidate

    def lead(self) -> bool:
        """Lead from now on unless another does; whether this one leads."""
        if self.leading:
            if self._pooled:
                self._try()
            return True
        if self._candidate is None:
            self._connect()
        if not self._try():
            if self._pooled:
                self._session.rollback()
            return False
        if self._pooled:
            work = self._work = pool.connect(self._using)
            work.patience = SILENCE
        else:
            self._session.execute(sql.SQL("UNLISTEN {}").format(sql.Identifier(CHANNEL)))
            self._work = self._candidate
        self.leading = True
        logger.info("This reaper leads now", extra={"database": self._using})
        return True

    def wait(self, timeout: float) -> None:
        """Wait until the leader says that it stops, ``wakeup`` rings, or the time is over."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakeup.reading, selectors.EVENT_READ)
            if self._candidate is not None and not self._pooled:
                selector.register(self._candidate.fileno(), selectors.EVENT_READ)
            for key, _ in selector.select(timeout):
                if key.fd == self._wakeup.reading:
                    self._wakeup.clear()
                    continue
                pgconn = self._session.pgconn
                try:
                    pgconn.consume_input()
                except psycopg.OperationalError:
                    self._session.close()
                    raise
                while pgconn.notifies() is not None:
                    pass

    def resign(self) -> None:
        """Stop leading at once, and close the connections."""
        if self.leading:
            # Said rather than left to the disconnect: that takes PostgreSQL a moment.
            with suppress(psycopg.Error):
                if self._pooled:
                    self._session.rollback()
                else:
                    ConnectionExecutor(self._session).fetch("reaper_resign", {**LOCK, "channel": CHANNEL})
            logger.info("This reaper leads no longer", extra={"database": self._using})
        self.drop()

    def drop(self) -> None:
        """Close the connections: another reaper leads as soon as PostgreSQL has noticed."""
        self.leading = False
        for connection in (self._work, self._candidate):
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.close()
        self._work = self._candidate = None

    def cancel(self) -> None:
        """Break off the statement that runs now, from another thread."""
        connection = self._work
        if connection is not None:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=2)

    def _connect(self) -> None:
        connection = self._candidate = pool.connect(self._using, dsn=self._dsn)
        connection.patience = SILENCE
        if self._pooled:
            connection.autocommit = False
            return
        ConnectionExecutor(connection).fetch("reaper_session", {})
        # Listening before the first attempt: who resigns after it is heard.
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))

    def _try(self) -> bool:
        leads: bool | None
        if self._pooled:
            # The simple protocol: in the other the finished statement keeps its snapshot, and that holds vacuum back.
            with psycopg.ClientCursor(self._session) as cursor:
                ((leads,),) = cursor.execute(statement("reaper_lead"), {**LOCK, "session": False}).fetchall()
        else:
            ((leads,),) = ConnectionExecutor(self._session).fetch("reaper_lead", {**LOCK, "session": True})
        if leads is None:
            raise psycopg.errors.ReadOnlySqlTransaction("the server is read-only")
        return leads

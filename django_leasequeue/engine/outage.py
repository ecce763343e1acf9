"""A database that is away for a while: the errors that pass by themselves, and the log lines of the time between."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable

import psycopg
from django.db import InterfaceError, OperationalError

from ..exceptions import StorageError

#: Seconds between attempts to reach the database again, doubled from the first to the last, and spread by a random
#: half: everybody is back within two seconds of the server.
FIRST_RETRY, LAST_RETRY = 0.1, 1.5

#: Classes of SQLSTATE that pass by themselves: connection, rollback (deadlock), resources, operator, system;
#: and the codes of a server that is read-only until it is promoted, of a transaction that an error before or a timeout
#: has ended, and of a lock that is not to be had.
_PASSING = ("08", "40", "53", "57", "58")
_READ_ONLY = "25006"
_PASSING_CODES = (_READ_ONLY, "25P02", "25P03", "25P04", "55P03")


def psycopg_error(error: BaseException) -> psycopg.Error | None:
    """Return psycopg's error: this one, or the one that Django or ``StorageError`` wrapped."""
    found: BaseException | None = error
    seen = set[int]()  # the host's errors may be in a circle
    while found is not None and not isinstance(found, psycopg.Error) and id(found) not in seen:
        seen.add(id(found))
        found = found.__cause__
    return found if isinstance(found, psycopg.Error) else None


def passes(error: BaseException) -> bool:
    """Return whether an error is one of the connection or the moment, not of what was asked."""
    found = psycopg_error(error)
    if found is None:
        return isinstance(error, OperationalError | InterfaceError | StorageError)
    state = found.sqlstate
    if state is None:
        return isinstance(found, psycopg.OperationalError | psycopg.InterfaceError)
    return state[:2] in _PASSING or state in _PASSING_CODES


def away(error: BaseException) -> bool:
    """Return whether the database's connection or server did not let something happen, for a moment or for longer."""
    found = (psycopg.OperationalError, psycopg.InterfaceError, OperationalError, InterfaceError, StorageError)
    return isinstance(error, found) or passes(error)


def lost(error: BaseException) -> bool:
    """Return whether the connection is gone, or there was none."""
    found = psycopg_error(error)
    state = "" if found is None else found.sqlstate or ""
    return passes(error) and (not state or state.startswith(("08", "57P")))


def read_only(error: BaseException) -> bool:
    """Return whether the server takes no writes now: the old one of a failover, or the new one before its promotion."""
    found = psycopg_error(error)
    return found is not None and found.sqlstate == _READ_ONLY


#: A serialisation failure, a deadlock, a prepared statement that is gone or there already (``DISCARD ALL``, a pooler):
#: none comes again by itself.
_UNDONE = ("40001", "40P01", "26000", "42P05")


def undone(error: BaseException) -> bool:
    """Return whether PostgreSQL rolled a transaction back for a reason that passes at once: it may be done again."""
    found = psycopg_error(error)
    return found is not None and found.sqlstate in _UNDONE


_MISSING = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedFunction)
_POOLED = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)


def advice(error: BaseException) -> str | None:
    """Return what is wrong with the installation and what to do; ``None`` if the error does not tell."""
    found = psycopg_error(error)
    if isinstance(found, _MISSING):
        return f"The tables are missing or old: run migrate ({str(found).splitlines()[0]})."
    if isinstance(found, _POOLED):
        return (
            "A prepared statement is gone: the database is behind a pooler in transaction mode (pgbouncer). Set"
            " 'DISABLE_SERVER_SIDE_CURSORS': True in DATABASES, and LEASEQUEUE['LISTEN_DSN']."
        )
    return None


def missing_right(error: BaseException) -> str | None:
    """Return what PostgreSQL says of a right that the role lacks, in one line; ``None`` for other errors."""
    found = psycopg_error(error)
    return str(found).splitlines()[0] if isinstance(found, psycopg.errors.InsufficientPrivilege) else None


class Outage:
    """Logs once that the database is away, and once that it is back, however many parts and threads try it."""

    def __init__(self, logger: logging.Logger, away: str, back: str, **extra: object) -> None:
        self._logger = logger
        self._away, self._back = away, back
        self._extra = extra
        self._lock = threading.Lock()
        #: The parts that do not reach it; empty while it is there.
        self.parts: set[Hashable] = set()
        self._since = 0.0

    def begins(self, part: Hashable, error: BaseException) -> None:
        """Note that a part does not reach the database."""
        with self._lock:
            first = not self.parts
            self.parts.add(part)
            if first:
                self._since = time.monotonic()
        level = logging.WARNING if first else logging.DEBUG
        self._logger.log(level, "%s: %s", self._away, error, extra=self._extra)

    def ends(self, part: Hashable) -> None:
        """Note that a part reaches the database, or has given up trying."""
        if part not in self.parts:
            return
        with self._lock:
            self.parts.discard(part)
            last = not self.parts
        if last:
            self._logger.info("%s after %.1f s", self._back, time.monotonic() - self._since, extra=self._extra)

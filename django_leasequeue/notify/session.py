"""The statements of a listener on its connection: LISTEN, the locks of waiting callers, reading notifications."""

from __future__ import annotations

import os
import secrets
import selectors
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress

import psycopg
from psycopg import sql

from .. import conf
from ..conf import process
from ..engine import ConnectionExecutor, arrays, pool
from ..engine.operation import Rows


class WakeUpPipe:
    """Ends a ``select`` of another thread."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)

    def wake(self) -> None:
        with suppress(BlockingIOError):  # the pipe is full of earlier ones
            os.write(self.writing, b"x")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while len(os.read(self.reading, 4096)) == 4096:
                pass

    def __del__(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


#: Seconds within which a new connection must receive its own notification.
PROOF = 3.0


class Deaf(psycopg.OperationalError):
    """Notifications do not reach the connection."""

    def __init__(self, using: str) -> None:
        super().__init__(
            "A pooler in transaction mode (pgbouncer) stands before it, or it leads to another database. Set"
            f" 'DISABLE_SERVER_SIDE_CURSORS': True in DATABASES[{using!r}], and LEASEQUEUE['LISTEN_DSN'] ="
            f" {{{using!r}: a connection string that leads straight to PostgreSQL}}. Until then this process polls."
        )


def listen_dsn(using: str) -> str | None:
    """Return an alias's ``LISTEN_DSN``; None: its listener connects as ``DATABASES`` says."""
    given = conf.settings.LISTEN_DSN
    if isinstance(given, dict):
        return given.get(using)
    return given if given == "" or using == conf.settings.DATABASE else None


class Session:
    """One connection that listens. Used by the listener's thread only."""

    def __init__(self, using: str, dsn: str | None, wakeup: WakeUpPipe) -> None:
        self._using = using
        self._connection = pool.connect(using, dsn=dsn, patience=conf.settings.STATEMENT_TIMEOUT or None)
        self._executor = ConnectionExecutor(self._connection)
        self._inbox: deque[tuple[str, str]] = deque()
        self._wakeup = wakeup
        self._by_alias = dsn is None
        #: How producers reach us: the first key of our locks, and the name of the channel ``JOBS``.
        self._names: tuple[int, str] | None = None
        # For notifications that arrive together with the answer to a statement.
        self._connection.add_notify_handler(lambda notify: self._keep(notify.channel, notify.payload))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._connection.fileno(), selectors.EVENT_READ)
        self._selector.register(wakeup.reading, selectors.EVENT_READ)

    def _keep(self, channel: str, payload: str) -> None:
        ours = self._names is not None and channel == self._names[1]
        self._inbox.append((JOBS if ours else channel, payload))

    def close(self) -> None:
        """Close the connection: PostgreSQL then forgets its locks and channels."""
        self._selector.close()
        self._connection.close()

    def listen(self, channels: Collection[str], over: Collection[str]) -> None:
        """LISTEN and UNLISTEN; a channel is an identifier, so it cannot be a parameter of a statement file."""
        for statement, names in ((sql.SQL("UNLISTEN {}"), over), (sql.SQL("LISTEN {}"), channels)):
            for name in names:
                channel = self._reached()[1] if name == JOBS else name
                self._connection.execute(statement.format(sql.Identifier(channel)))

    def _reached(self) -> tuple[int, str]:
        if self._names is None:
            # As the alias finds the tables: a connection of LISTEN_DSN may have another search path.
            patience = conf.settings.STATEMENT_TIMEOUT or None
            own = nullcontext(self._connection) if self._by_alias else None
            with own or pool.connect(self._using, patience=patience) as finds:
                (self._names,) = ConnectionExecutor(finds).fetch("notify_names", {})
        return self._names

    def prove(self, over: Callable[[], bool]) -> None:
        """Test notifications: send one over another connection; raise ``Deaf`` if it does not arrive in time."""
        probe = f"leasequeue_probe_{secrets.token_hex(8)}"
        self.listen({probe}, over=())
        try:
            with pool.connect(self._using) as other:
                other.execute(sql.SQL("NOTIFY {}").format(sql.Identifier(probe)))
        except psycopg.Error:  # for example no free connection: says nothing about this one
            return
        end = time.monotonic() + PROOF
        while (probe, "") not in self.read(max(0.0, end - time.monotonic())):
            if over():
                return
            if time.monotonic() >= end:
                raise Deaf(self._using)
        self.listen((), over={probe})

    def hold(self, queue_ids: Collection[int]) -> tuple[list[int], int | None]:
        """Take the free locks of queues (a producer may be testing one); return their queues, and a mark.

        Every new job sends a notification once the oldest transaction has reached the mark; ``None``: it has.
        """
        held = [queue_id for (queue_id,) in self._on_locks("notify_hold", queue_ids)]
        oldest, mark = self._executor.fetch("notify_mark", {})[0]
        return held, None if oldest >= mark else int(mark)

    def release(self, queue_ids: Collection[int]) -> None:
        self._on_locks("notify_release", queue_ids)

    def oldest(self) -> int:
        return int(self._executor.fetch("notify_oldest", {})[0][0])

    def _on_locks(self, name: str, queue_ids: Collection[int]) -> Rows:
        return self._executor.fetch(name, {"lock": self._reached()[0], "queues": arrays.integers(queue_ids)})

    def read(self, timeout: float | None) -> list[tuple[str, str]]:
        """Wait for notifications or a wake-up, at most ``timeout`` seconds; return (channel, payload) of each."""
        if not self._inbox:
            for key, _ in self._selector.select(timeout):
                if key.fd == self._wakeup.reading:
                    self._wakeup.clear()
                else:
                    pgconn = self._connection.pgconn
                    pgconn.consume_input()
                    while (notify := pgconn.notifies()) is not None:
                        self._keep(notify.relname.decode(), notify.extra.decode())
        found = list(self._inbox)
        self._inbox.clear()
        return found


#: Stands for the channel on which the engine announces ready jobs (``q<queue id>``), new and deleted queues (``n``,
#: ``d<queue id>``), and that leases of a queue were taken from workers (``l<queue id>``). Its name is the schema's own.
JOBS = "leasequeue"

_names: process.Shared[str, str] = process.Shared()


def reply_channel() -> str:
    """Return this process's own channel for answers (``NewJob.reply_to``): an unguessable name for all its callers."""
    return _names.get("reply", lambda _: f"leasequeue_reply_{os.getpid()}_{secrets.token_hex(8)}")

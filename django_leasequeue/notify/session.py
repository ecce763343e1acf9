"""The statements of a listener on its connection: LISTEN, the locks of those who wait, reading what comes in."""

from __future__ import annotations

import os
import secrets
import selectors
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from .. import conf
from ..conf import process
from ..engine import ConnectionExecutor, arrays, pool


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


class Session:
    """One connection that listens. Used by the listener's thread only."""

    def __init__(self, using: str, dsn: str | None, wakeup: WakeUpPipe) -> None:
        self._connection = pool.connect(using, dsn=dsn, patience=conf.settings.STATEMENT_TIMEOUT or None)
        self._executor = ConnectionExecutor(self._connection)
        self._inbox: deque[tuple[str, str]] = deque()
        self._wakeup = wakeup
        # Notifications that arrive together with the answer to a statement come this way.
        self._connection.add_notify_handler(self._keep)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._connection.fileno(), selectors.EVENT_READ)
        self._selector.register(wakeup.reading, selectors.EVENT_READ)

    def _keep(self, notify: psycopg.Notify) -> None:
        self._inbox.append((notify.channel, notify.payload))

    def close(self) -> None:
        """Close the connection: PostgreSQL then forgets its locks and channels."""
        self._selector.close()
        self._connection.close()

    def listen(self, channels: Collection[str], over: Collection[str]) -> None:
        """LISTEN, and UNLISTEN what is over; a channel is a name, so it cannot be a parameter of a statement file."""
        for statement, names in ((sql.SQL("UNLISTEN {}"), over), (sql.SQL("LISTEN {}"), channels)):
            for name in names:
                self._connection.execute(statement.format(sql.Identifier(name)))

    def hold(self, queue_ids: Collection[int]) -> tuple[list[int], int | None]:
        """Take the locks of queues that are free (a producer may just test one); return those, and a mark.

        Silence means that nothing came when the oldest transaction has reached the mark; ``None`` if it has.
        """
        held = [queue_id for (queue_id,) in self._fetch("notify_hold", queues=arrays.integers(queue_ids))]
        oldest, mark = self._fetch("notify_mark")[0]
        return held, None if oldest >= mark else int(mark)

    def release(self, queue_ids: Collection[int]) -> None:
        self._fetch("notify_release", queues=arrays.integers(queue_ids))

    def oldest(self) -> int:
        return int(self._fetch("notify_oldest")[0][0])

    def _fetch(self, name: str, **params: Any) -> list[tuple[Any, ...]]:
        return self._executor.fetch(name, params)

    def read(self, timeout: float | None) -> list[tuple[str, str]]:
        """Wait for notifications or a wake-up, at most ``timeout`` seconds; return (channel, payload) of what came."""
        if not self._inbox:
            for key, _ in self._selector.select(timeout):
                if key.fd == self._wakeup.reading:
                    self._wakeup.clear()
                else:
                    pgconn = self._connection.pgconn
                    pgconn.consume_input()
                    while (notify := pgconn.notifies()) is not None:
                        self._inbox.append((notify.relname.decode(), notify.extra.decode()))
        found = list(self._inbox)
        self._inbox.clear()
        return found


#: The channel on which the engine announces ready jobs (``q<queue id>``), new queues (``n``), and that leases of a
#: queue were taken from workers (``l<queue id>``).
JOBS = "leasequeue"

_names: process.Shared[str, str] = process.Shared()


def reply_channel() -> str:
    """Return this process's own channel for answers (``NewJob.reply_to``): an unguessable name for all its callers."""
    return _names.get("reply", lambda _: f"leasequeue_reply_{os.getpid()}_{secrets.token_hex(8)}")

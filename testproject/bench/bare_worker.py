"""The ceiling of a worker: the barest loop in psycopg that claims, calls a function that does nothing, and deletes.

``python -m testproject.bench.bare_worker BATCH`` drains the ceiling's table and prints, as JSON, when how many
jobs were done. ``... listen`` waits for notifications instead, deletes what is there with one statement and tells when
each job began; ``... reply`` also tells who waits for the end. The database is in ``LEASEQUEUE_BENCH_DSN``. Django is
not loaded.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import psycopg

from testproject.bench import stamps
from testproject.bench.child import watch
from testproject.bench.sql import statement

DSN_VARIABLE = "LEASEQUEUE_BENCH_DSN"
#: Where a waiting loop is told of jobs, and where it tells that they are done.
CHANNEL = "leasequeue_bench"
REPLIES = "leasequeue_bench_replies"


def noop(number: int) -> None:
    """Do nothing."""


class Loop:
    """Claim, call, delete."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=0)
        self._cursor = self.connection.cursor(binary=True)
        self._claim, self._ack = map(statement, ("bare_claim", "bare_ack"))

    def claim(self, size: int) -> list[Any]:
        """Take up to ``size`` jobs."""
        return self._cursor.execute(self._claim, {"size": size}).fetchall()

    def ack(self, rows: list[Any]) -> None:
        """Delete them."""
        self._cursor.execute(self._ack, {"ids": _literal(rows)})

    def take(self, size: int, *, replies: bool) -> list[Any]:
        """Delete up to ``size`` jobs and return them, where asked for with a word to who waits for their end."""
        name = "bare_take_notify" if replies else "bare_take"
        return self._cursor.execute(statement(name), {"size": size, "channel": REPLIES}).fetchall()


def _literal(rows: list[Any]) -> str:
    return "{" + ",".join([str(row[0]) for row in rows]) + "}"


def drain(dsn: str, batch: int) -> list[tuple[float, int]]:
    """Work until the table is empty; return (time, jobs done) after each batch."""
    loop = Loop(dsn)
    done = 0
    times = [(time.time(), 0)]
    while rows := loop.claim(batch):
        for row in rows:
            noop(*json.loads(row[3])["args"])
        loop.ack(rows)
        done += len(rows)
        times.append((time.time(), done))
    return times


def listen(dsn: str, address: str, *, replies: bool) -> None:
    """Wait for jobs for ever; send the number and the start of each to a socket, before their end is durable."""
    loop = Loop(dsn)
    loop.connection.execute(f"LISTEN {CHANNEL}")
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.connect(address)
    # Where nobody reads what began when, nothing waits for a reader.
    told.setblocking(False)
    while True:
        rows: list[Any] = [()]
        while rows:
            with loop.connection.transaction():
                rows = loop.take(10, replies=replies)
                for row in rows:
                    with suppress(BlockingIOError):
                        told.send(stamps.STAMP.pack(*json.loads(row[3])["args"], time.monotonic_ns()))
        for _ in loop.connection.notifies(timeout=5, stop_after=1):
            pass


def main(argument: str) -> None:
    """Run what the argument says."""
    threading.Thread(target=watch, daemon=True).start()
    dsn = os.environ[DSN_VARIABLE]
    if argument in ("listen", "reply"):
        listen(dsn, stamps.address(), replies=argument == "reply")
    else:
        sys.stdout.write(json.dumps(drain(dsn, int(argument))))


if __name__ == "__main__":
    main(sys.argv[1])

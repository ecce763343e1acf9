"""The readers: ``python -m tests.soak.readers URL``. They read topics and the event stream until SIGTERM.

One reads with the engine's cursor, one over HTTP page by page, one an event stream over HTTP, and one the lease log as
Spark's stream does. Each keeps its place. None knows of the others, or of what was written.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
import httpx
import psycopg
from psycopg import sql

from django_leasequeue.client import Client, ClientError, Retry
from django_leasequeue.client.events import EventReader
from django_leasequeue.engine import ConnectionExecutor, pool
from django_leasequeue.engine.topics import log
from django_leasequeue.exceptions import LeaseQueueError
from django_leasequeue.spark import slices

from .evidence import DIRECTORY, FAILOVER, SECOND, monotonic, witness

logger = logging.getLogger("tests.soak.readers")

TOPICS = ("log", "fastlog")
#: Their names, as they sign what they read.
READERS = ("cursor", "diff", "watch")
#: Seconds between looks for something new.
POLL = 0.1
#: Seconds of silence after which an event stream counts as broken (it has a heartbeat every 15).
SILENCE = 20.0
#: Events of transactions that began so long before a look are sure to be read by it.
MARGIN = SECOND
#: How long a reader remembers where it was.
MEMORY = 60 * SECOND

#: When the oldest transaction that holds a number began; now, if there is none.
OLDEST = (
    "SELECT coalesce(min(xact_start), clock_timestamp()) FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
    " AND datname = current_database()"
)
EVENTS = (
    "SELECT p.txid, p.id, p.kind, coalesce(p.claim, 0), p.occurred_at,"
    " coalesce(extract(epoch FROM p.deadline - p.occurred_at) * 1000000000, 0)::bigint, p.seqs"
    " FROM leasequeue_leaseevent p WHERE {} ORDER BY p.txid, p.id"
)

stop = threading.Event()


class Bookmark:
    """Where a reader is, and was: it begins again before the loss when a server takes over that has not seen all.

    Args:
        reader: its name.
        begin: where it begins.
        positions: returns what the oracle calls a place: topics, and the positions in them.
    """

    def __init__(self, reader: str, begin: Any, positions: Callable[[Any], dict[str, int]]) -> None:
        self.reader = reader
        self._positions = positions
        self._known = self._failover()
        self._past = deque([(0, begin)])

    @property
    def place(self) -> Any:
        """Where it is."""
        return self._past[-1][1]

    def move(self, place: Any) -> None:
        """Note where it is now."""
        now = time.monotonic_ns()
        self._past.append((now, place))
        while len(self._past) > 2 and self._past[1][0] < now - MEMORY:
            self._past.popleft()

    def lost(self) -> bool:
        """Whether a server has taken over since the last call: then what was read last does not count."""
        known = self._failover()
        if known == self._known:
            return False
        self._known = known
        while len(self._past) > 1 and self._past[-1][0] > known - MARGIN:
            self._past.pop()
        for topic, position in self._positions(self.place).items():
            witness().say("reset", self.reader, topic, position)
        return True

    @staticmethod
    def _failover() -> int:
        try:
            return int((Path(os.environ[DIRECTORY]) / FAILOVER).read_text() or 0)
        except FileNotFoundError:
            return 0


def in_topics(reader: str) -> Bookmark:
    """Return the bookmark of a reader of the topics."""
    return Bookmark(reader, dict.fromkeys(TOPICS, 0), dict)


def say(reader: str, topic: str, pairs: list[list[int]]) -> None:
    """Write down what a reader got."""
    if pairs:
        witness().say("read", reader, topic, pairs)


def by_cursor() -> None:
    """Read topics with the engine's cursor."""
    seals = log.Sealer()
    mark = in_topics("cursor")
    connection: psycopg.Connection[Any] | None = None
    while not stop.is_set():
        try:
            connection = connection or pool.connect("default")
            for topic in TOPICS:
                after = mark.place[topic]
                page = ConnectionExecutor(connection).run(log.read(topic, after=after, size=100, seals=seals))
                if mark.lost():
                    break
                say("cursor", topic, [[record.seq, record.data] for record in page.records])
                mark.move({**mark.place, topic: page.cursor})
        except psycopg.Error as error:
            logger.warning("cursor: %s", error)
            if connection is not None:
                connection.close()
            connection = None
        stop.wait(POLL)


def by_diff(url: str) -> None:
    """Read topics over HTTP, page by page."""
    mark = in_topics("diff")
    with Client(url, timeout=5, retry=Retry(tries=1)) as client:
        while not stop.is_set():
            for topic in TOPICS:
                try:
                    page = client.read(topic, mark.place[topic], limit=100)
                except ClientError as error:
                    logger.warning("diff: %s", error)
                    continue
                if mark.lost():
                    break
                say("diff", topic, [[record["$seq"], record["data"]] for record in page.records])
                mark.move({**mark.place, topic: page.next_from_seq})
            stop.wait(POLL)


def by_watch(url: str) -> None:
    """Read topics as an event stream over HTTP; after a break go on behind the last event."""
    address, last = "", None
    mark = in_topics("watch")
    while not stop.is_set():
        try:
            with httpx.Client(timeout=httpx.Timeout(5, read=SILENCE)) as client:
                if mark.lost():
                    address, last = "", None
                if not address:
                    answer = client.post(f"{url}/watch", json={"topics": mark.place})
                    answer.raise_for_status()
                    address = url.removesuffix("/v0") + answer.json()["stream_url"]
                headers = {"accept": "text/event-stream", **({"last-event-id": last} if last else {})}
                with client.stream("GET", address, headers=headers) as stream:
                    stream.raise_for_status()
                    reader = EventReader()
                    for piece in stream.iter_raw():
                        if stop.is_set():
                            return
                        for event in reader.feed(piece):
                            if mark.lost():
                                address, last = "", None
                                raise httpx.ReadError("another server took over")
                            if event.name == "record":
                                record = json.loads(event.data)
                                topic, seq = record["topic"], record["$seq"]
                                say("watch", topic, [[seq, record["data"]]])
                                mark.move({**mark.place, topic: seq})
                            last = event.id or last
        except (httpx.HTTPError, ValueError) as error:
            logger.warning("watch: %r", error)
        stop.wait(2 * POLL)


def by_events() -> None:
    """Read the lease log as a stream: behind the last row, up to the horizon."""
    mark = Bookmark("events", slices.START, lambda point: {"events": point.txid})
    connection: psycopg.Connection[Any] | None = None
    while not stop.is_set():
        try:
            connection = connection or pool.connect("default")
            row = connection.execute(OLDEST).fetchone()
            assert row is not None
            known = monotonic(row[0]) - MARGIN
            top = slices.Point(slices.horizon(connection).xmin - 1, slices.MAX_ID)
            if top > mark.place:
                rows = connection.execute(sql.SQL(EVENTS).format(slices.of_events(mark.place, top))).fetchall()
                if mark.lost():
                    continue
                for at in range(0, len(rows), 200):
                    witness().say(
                        "events",
                        [
                            [number, txid, kind, claim, monotonic(said), monotonic(said) + lasts, seqs]
                            for txid, number, kind, claim, said, lasts, seqs in rows[at : at + 200]
                        ],
                    )
                mark.move(top)
            elif mark.lost():
                continue
            witness().say("upto", known)
        except (psycopg.Error, LeaseQueueError) as error:
            logger.warning("events: %s", error)
            if connection is not None:
                connection.close()
            connection = None
        stop.wait(2 * POLL)


def main(url: str) -> None:
    """Read until SIGTERM.

    Args:
        url: of the HTTP door.
    """
    django.setup()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    bodies: list[Callable[[], None]] = [by_cursor, lambda: by_diff(url), lambda: by_watch(url), by_events]
    threads = [threading.Thread(target=body, daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    while not stop.is_set():
        time.sleep(0.1)
        if not all(thread.is_alive() for thread in threads):
            sys.exit("a reader ended by an error of its own")
    for thread in threads:
        thread.join(2)


if __name__ == "__main__":
    main(sys.argv[1])

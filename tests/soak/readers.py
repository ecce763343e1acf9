"""The readers: ``python -m tests.soak.readers URL``. They read topics and the event stream until SIGTERM.

One reads with the engine's cursor, one over HTTP page by page, one an event stream over HTTP, and one the lease log as
Spark's stream does. Each keeps its place and the server's timeline. None knows of the others, or of what was written;
of a failover each knows only from what it reads.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import django
import httpx
import psycopg
from psycopg import sql

from django_leasequeue.client import Client, ClientError, Retry
from django_leasequeue.client.plans import EventReader
from django_leasequeue.engine import ConnectionExecutor, pool
from django_leasequeue.engine.topics import log
from django_leasequeue.exceptions import LeaseQueueError, LogTruncated
from django_leasequeue.spark import slices

from .evidence import SECOND, monotonic, witness

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


def say(reader: str, topic: str, pairs: list[list[int]]) -> None:
    if pairs:
        witness().say("read", reader, topic, pairs)


def steadily(name: str, seconds: float, turn: Callable[[psycopg.Connection[Any]], None]) -> None:
    """Take one turn after the other on a connection, on a new one after each error."""
    connection: psycopg.Connection[Any] | None = None
    while not stop.is_set():
        try:
            connection = connection or pool.connect("default")
            turn(connection)
        except (psycopg.Error, LeaseQueueError) as error:
            logger.warning("%s: %s", name, error)
            if connection is not None:
                connection.close()
            connection = None
        stop.wait(seconds)


def by_cursor() -> None:
    """Read topics with the engine's cursor; where a failover may have lost records, read on from what it kept."""
    seals = log.Sealer()
    places: dict[str, tuple[int, int | None]] = dict.fromkeys(TOPICS, (0, None))

    def turn(connection: psycopg.Connection[Any]) -> None:
        for topic, (after, timeline) in places.items():
            reading = log.read(topic, after=after, size=100, timeline=timeline, seals=seals)
            try:
                page = ConnectionExecutor(connection).run(reading)
            except LogTruncated as error:
                witness().say("reset", "cursor", topic, error.kept)
                places[topic] = error.kept, error.timeline
                continue
            say("cursor", topic, [[record.seq, record.data] for record in page.records])
            places[topic] = page.cursor, page.timeline

    steadily("cursor", POLL, turn)


def by_diff(url: str) -> None:
    places: dict[str, tuple[int, int | None]] = dict.fromkeys(TOPICS, (0, None))
    with Client(url, timeout=5, retry=Retry(tries=1)) as client:
        while not stop.is_set():
            for topic, (after, timeline) in places.items():
                try:
                    page = client.read(topic, after, limit=100, timeline=timeline, reset=True)
                except ClientError as error:
                    logger.warning("diff: %s", error)
                    continue
                if page.reset_to is not None:
                    witness().say("reset", "diff", topic, page.reset_to)
                say("diff", topic, [[record["$seq"], record["data"]] for record in page.records])
                places[topic] = page.next_from_seq, page.timeline
            stop.wait(POLL)


def by_watch(url: str) -> None:
    """Read topics as an event stream over HTTP; after a break go on behind the last event."""
    address, last = "", None
    while not stop.is_set():
        try:
            with httpx.Client(timeout=httpx.Timeout(5, read=SILENCE)) as client:
                if not address:
                    watch = {"topics": dict.fromkeys(TOPICS, 0), "reset": True}
                    answer = client.post(f"{url}/watch", json=watch)
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
                            if event.name == "record":
                                record = json.loads(event.data)
                                say("watch", record["topic"], [[record["$seq"], record["data"]]])
                            elif event.name == "reset":
                                begin = json.loads(event.data)
                                witness().say("reset", "watch", begin["topic"], begin["next_from_seq"])
                            last = event.id or last
        except (httpx.HTTPError, ValueError) as error:
            logger.warning("watch: %r", error)
        stop.wait(2 * POLL)


def by_events() -> None:
    """Read the lease log as a stream: behind the last row, up to the horizon."""
    place, timeline = slices.START, 0

    def turn(connection: psycopg.Connection[Any]) -> None:
        nonlocal place, timeline
        row = connection.execute(OLDEST).fetchone()
        assert row is not None
        known = monotonic(row[0]) - MARGIN
        until = slices.horizon(connection)
        if timeline and until.timeline != timeline:
            kept = slices.kept(connection, timeline, until.timeline)
            if place > kept:
                witness().say("reset", "events", "events", kept.txid - 1)
                place = kept
        timeline = until.timeline
        top = slices.Point(until.xmin - 1, slices.MAX_ID)
        if top > place:
            rows = connection.execute(sql.SQL(EVENTS).format(slices.of_events(place, top))).fetchall()
            entries = [
                [number, txid, kind, claim, monotonic(said), monotonic(said) + lasts, seqs]
                for txid, number, kind, claim, said, lasts, seqs in rows
            ]
            for at in range(0, len(entries), 200):
                witness().say("events", entries[at : at + 200])
            place = top
        witness().say("upto", known)

    steadily("events", 2 * POLL, turn)


def main(url: str) -> None:
    django.setup()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    bodies: list[Callable[[], None]] = [by_cursor, lambda: by_diff(url), lambda: by_watch(url), by_events]
    threads = [threading.Thread(target=body, daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    while not stop.is_set():
        time.sleep(0.1)
        if not all(thread.is_alive() for thread in threads) and not stop.is_set():
            witness().say("differs", "a reader ended by an error of its own: see readers.log")
            sys.exit(1)
    for thread in threads:
        thread.join(2)


if __name__ == "__main__":
    main(sys.argv[1])

"""What a stream has read, against what the log has lost: by retention, by hand, by a crash of PostgreSQL. No JVM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import copy
from typing import Any

import psycopg
import pytest
from pyspark.sql import types

from django_leasequeue.engine import partitions
from django_leasequeue.engine.pool import connect
from django_leasequeue.exceptions import StorageError
from django_leasequeue.spark import consumers, stream
from django_leasequeue.spark.consumers import StreamInterrupted
from django_leasequeue.spark.database import STREAM, Options
from django_leasequeue.sql.dropped import DroppedEvents
from tests.spark.helpers import at, event, many
from tests.support.temporary_server import TemporaryServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not hasattr(stream, "LimitedStream"), reason="pyspark 4.1 asks for the end otherwise"),
]

OLD = at(-10 * 365 * 86_400)
SCHEMA = types.StructType([types.StructField(name, types.LongType()) for name in ("id", "txid", "seq")])


class Query:
    """A streaming query without Spark: its checkpoint, and the rows of its sink."""

    def __init__(self, dsn: str) -> None:
        found = psycopg.conninfo.conninfo_to_dict(dsn)
        self.place = {name: value for name, value in found.items() if isinstance(value, str)}
        self.checkpoint: dict[str, Any] | None = None
        self.rows: list[tuple[int, int, int]] = []

    def reader(self, **options: str) -> Any:
        return stream.stream_reader(Options({**self.place, **options}, STREAM, "stream"), SCHEMA)

    def drain(self, **options: str) -> int:
        """Run to the end of the log; return how many events came."""
        reader = self.reader(**options)
        before = len(self.rows)
        while self.step(reader):
            pass
        return len(self.rows) - before

    def step(self, reader: Any) -> bool:
        """Read a batch and commit it; return whether there was one."""
        start = self.checkpoint or reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        self.checkpoint = start
        if end == start:
            return False
        read: list[Any] = [
            tuple(row.values())
            for slice_ in reader.partitions(start, end)
            for batch in reader.read(slice_)
            for row in batch.to_pylist()
        ]
        self.rows += read
        self.checkpoint = end
        return True

    @property
    def seqs(self) -> list[int]:
        return sorted(seq for _, _, seq in self.rows)


@pytest.fixture
def query(test_dsn: str) -> Query:
    return Query(test_dsn)


@pytest.fixture
def retention(database: psycopg.Connection[Any], settings: Any) -> Iterator[Any]:
    """Drop what is full: everything that is old enough, in rows numbered below 500,000."""
    settings.LEASEQUEUE = {**getattr(settings, "LEASEQUEUE", {}), "EVENT_RETENTION_DAYS": 1}

    def drop() -> list[str]:
        database.execute("SELECT setval(pg_get_serial_sequence('leasequeue_leaseevent', 'id'), 510000)")
        with connect("default") as connection:
            return partitions.maintain(connection).dropped

    yield drop
    if not database.execute("SELECT to_regclass('leasequeue_leaseevent_p0')").fetchone()[0]:  # type: ignore[index]
        database.execute(
            "CREATE TABLE leasequeue_leaseevent_p0 PARTITION OF leasequeue_leaseevent FOR VALUES FROM (0) TO (500000)"
            " WITH (toast_tuple_target = 8160)"
        )


def old(database: psycopg.Connection[Any], seq: int, number: int) -> None:
    event(database, seq=seq, id=number, occurred_at=OLD)


def test_what_was_dropped_unread_is_named_and_going_on_is_noted(
    query: Query, database: psycopg.Connection[Any], retention: Any
) -> None:
    old(database, 1, 10)
    query.drain()
    old(database, 2, 20)
    old(database, 3, 30)
    row = database.execute("SELECT txid FROM leasequeue_leaseevent WHERE id = 30").fetchone()
    assert row is not None
    assert retention() == ["leasequeue_leaseevent_p0"]
    with pytest.raises(StreamInterrupted):
        query.drain()
    other = copy(query)
    assert other.drain(failOnDataLoss="false") == other.drain() == 0
    assert consumers.accepted(other.checkpoint or {}), "a decision is noted even if nothing is left"
    event(database, seq=4)

    for options in ({}, {"maxRowsPerTrigger": "1"}):
        with pytest.raises(StreamInterrupted, match=f"up to row 30 of transaction {row[0]}.*failOnDataLoss"):
            query.drain(**options)
    assert query.drain(failOnDataLoss="false") == 1
    (noted,) = consumers.accepted(query.checkpoint or {})
    assert (noted.to, noted.below) == ((row[0], 30), 500_000)
    # It is decided once, and stays in the checkpoint.
    event(database, seq=5)
    assert query.drain() == 1
    assert query.seqs == [1, 4, 5]
    assert consumers.accepted(query.checkpoint or {}) == [noted]


def test_nothing_is_lost_where_everything_was_read(
    query: Query, database: psycopg.Connection[Any], retention: Any, test_dsn: str
) -> None:
    old(database, 1, 10)
    old(database, 2, 20)
    query.drain(consumer="lake")
    assert retention() == ["leasequeue_leaseevent_p0"]
    assert query.drain(consumer="lake") == 0
    # The oldest event that is left came after the checkpoint, and a new stream begins with it.
    event(database, seq=3)
    late = Query(test_dsn)
    late.drain()
    assert late.seqs == [3]
    query.drain(consumer="lake")
    assert query.seqs == [1, 2, 3]


def test_an_event_of_a_long_transaction_is_missed_though_older_ones_are_there(
    query: Query, database: psycopg.Connection[Any], retention: Any, test_dsn: str
) -> None:
    """Numbers and transactions are in another order: what was dropped is compared, not what is left."""
    with psycopg.connect(test_dsn) as early, psycopg.connect(test_dsn) as late:
        event(early, seq=1, id=500_010)  # before the other, and in a partition that stays
        old(late, 2, 20)
        early.commit()
        query.drain()
        assert query.seqs == [1]
        late.commit()
    assert retention() == ["leasequeue_leaseevent_p0"]
    with pytest.raises(StreamInterrupted, match="up to row 20"):
        query.drain()


def test_partitions_that_were_dropped_by_hand(query: Query, database: psycopg.Connection[Any], retention: Any) -> None:
    old(database, 1, 10)
    query.drain()
    old(database, 2, 20)
    database.execute("DROP TABLE leasequeue_leaseevent_p0")
    database.execute("SELECT setval(pg_get_serial_sequence('leasequeue_leaseevent', 'id'), 510000)")
    event(database, seq=3)
    with pytest.raises(StreamInterrupted, match="it was not retention"):
        query.drain()
    assert query.drain(failOnDataLoss="false") == 1
    event(database, seq=4)
    assert query.drain() == 1


def test_rows_that_were_deleted_by_hand(query: Query, database: psycopg.Connection[Any], test_dsn: str) -> None:
    def delete(seq: int) -> None:
        with psycopg.connect(test_dsn) as connection:  # PostgreSQL counts at its end, at the latest
            connection.execute("SET session_replication_role = replica")
            assert connection.execute("DELETE FROM leasequeue_leaseevent WHERE low = %s", [seq]).rowcount == 1

    for seq in (1, 2, 3, 4):
        event(database, seq=seq)
    delete(1)
    assert query.drain() == 3
    event(database, seq=5)
    assert query.drain() == 1, "what was deleted before the stream began is no loss"
    event(database, seq=6)
    delete(6)
    with pytest.raises(StreamInterrupted, match=r"past the trigger.*\d from leasequeue_leaseevent.*accept-loss"):
        query.drain()
    assert query.drain(failOnDataLoss="false") == 0
    event(database, seq=7)
    assert query.drain() == 1


def test_what_is_dropped_between_planning_and_reading_is_noticed(
    query: Query, database: psycopg.Connection[Any], retention: Any
) -> None:
    old(database, 1, 10)
    query.drain()
    old(database, 2, 20)
    reader = query.reader()
    end = reader.latestOffset(query.checkpoint, reader.getDefaultReadLimit())
    (planned,) = reader.partitions(query.checkpoint, end)
    assert retention()
    with pytest.raises(StreamInterrupted, match="while they were read"):
        list(reader.read(planned))


def test_a_note_of_another_system_says_nothing_here(
    query: Query, database: psycopg.Connection[Any], retention: Any
) -> None:
    """A dump brings the note along; the transactions that it names were others."""
    old(database, 1, 10)
    query.drain()
    retention()
    row = database.execute("SELECT obj_description('leasequeue_leaseevent'::regclass, 'pg_class')").fetchone()
    foreign = DroppedEvents.read(row[0])._replace(to=(2**40, 5), system="1")
    database.execute(psycopg.sql.SQL("COMMENT ON TABLE leasequeue_leaseevent IS {}").format(foreign.note()))
    event(database, seq=2)
    assert query.drain() == 1


@pytest.mark.slow
@pytest.mark.chaos
def test_what_was_read_survives_an_immediate_stop(query: Query, migrated_server: TemporaryServer) -> None:
    """Commits that nobody waits for, a disk that is late: three times PostgreSQL is stopped in mid-stream."""
    dsn = migrated_server.url()
    with psycopg.connect(dsn, autocommit=True) as connection:
        # Without us, the log would be written every ten seconds.
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        connection.execute("ALTER SYSTEM SET synchronous_commit = off")
        connection.execute("SELECT pg_reload_conf()")
    query = Query(dsn)
    for _ in range(3):
        stop = threading.Event()
        writers = [threading.Thread(target=write, args=(dsn, stop)) for _ in range(2)]
        for writer in writers:
            writer.start()
        read = len(query.rows)
        try:
            reader = query.reader(maxRowsPerTrigger="50")
            while len(query.rows) < read + 200:
                query.step(reader)
            migrated_server.stop("immediate")
            with pytest.raises((StorageError, psycopg.OperationalError)):
                query.step(reader)
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        migrated_server.start()
        # What is in the sink is in the log, as it was read; what was not read goes on behind it.
        with psycopg.connect(dsn) as connection:
            there = set(connection.execute("SELECT id, txid, seq FROM leasequeue_jobevent").fetchall())
        assert set(query.rows) <= there
    query.drain()
    assert set(query.rows) == there
    assert len(query.rows) == len(there)


def write(dsn: str, stop: threading.Event) -> None:
    """Write events until the server is gone."""
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not stop.is_set():
                many(connection, 20, jobs=5)
    except psycopg.OperationalError:
        return

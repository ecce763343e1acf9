"""The stream: every event once, whatever the writers, the readers and the machine do, and whatever the log has lost."""

import threading
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.utils import timezone
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from django_leasequeue.engine import ConnectionExecutor, partitions
from django_leasequeue.engine.pool import connect
from django_leasequeue.exceptions import StorageError
from django_leasequeue.models import LakeConsumer, Timeline
from django_leasequeue.spark import consumers, stream
from django_leasequeue.spark.database import STREAM, Options
from django_leasequeue.spark.slices import StreamInterrupted
from tests.engine.lease_log import drawn, put_back
from tests.spark.conftest import Source
from tests.spark.helpers import Database, at, event, many, words
from tests.spark.query import LIMITS, Query
from tests.support.rows import rows
from tests.support.temporary_server import TemporaryServer

pytestmark = pytest.mark.django_db(transaction=True)

OLD = at(-10 * 365 * 86_400)
SCHEMA = "id bigint, txid bigint, seq bigint, node string"
needs_limits = pytest.mark.skipif(not LIMITS, reason="pyspark 4.1 knows no limits of a batch, and lags by one")


def limited(rows: int) -> dict[str, object]:
    return {"maxRowsPerTrigger": rows} if LIMITS else {}


class Lake:
    """A stream into Parquet, run until it has read what there is."""

    def __init__(self, source: Source, path: Path) -> None:
        self.source, self.path = source, path

    def stream(self, **options: object) -> DataFrame:
        reader = self.source.session.readStream.format("leasequeue")
        return reader.options(**self.source.options, **words(options)).schema(SCHEMA).load()

    def drain(self, **options: object) -> list[dict[str, Any]]:
        writer = self.stream(**options).writeStream.format("parquet").option("path", str(self.path / "events"))
        query = writer.option("checkpointLocation", str(self.path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(600)
        return list(query.recentProgress)

    def seqs(self) -> list[int]:
        return sorted(row.seq for row in self.read().collect())

    def read(self) -> DataFrame:
        return self.source.session.read.parquet(str(self.path / "events"))


@pytest.fixture
def lake(source: Source, tmp_path: Path) -> Lake:
    return Lake(source, tmp_path)


def test_lower_numbers_come_later_and_rolled_back_ones_never(lake: Lake, database: Database, test_dsn: str) -> None:
    event(database, seq=1)
    with psycopg.connect(test_dsn) as slow, psycopg.connect(test_dsn) as lost:
        event(slow, seq=2)
        event(lost, seq=3)
        event(database, seq=4)
        lake.drain()
        assert lake.seqs() == [1]
        lost.rollback()
        slow.commit()
    lake.drain()
    assert lake.seqs() == [1, 2, 4]


@needs_limits
def test_a_transaction_id_that_gains_a_digit(lake: Lake, database: Database) -> None:
    for txid in (9, 10, 99, 100, 101):
        event(database, seq=txid, txid=txid)
        lake.drain(maxRowsPerTrigger=1)
    assert lake.seqs() == [9, 10, 99, 100, 101]


@needs_limits
def test_a_batch_is_limited_and_nothing_is_lost_between_batches(lake: Lake, database: Database) -> None:
    for _ in range(3):
        many(database, 1_000)  # one transaction of many rows is cut as well
    batches = lake.drain(maxRowsPerTrigger=700)
    assert [batch["numInputRows"] for batch in batches if batch["numInputRows"]] == [700, 700, 700, 700, 200]
    frame = lake.read()
    assert frame.agg(f.count("id"), f.countDistinct("id")).first() == (3_000, 3_000)
    many(database, 10, jobs=5)
    sizes = [batch["numInputRows"] for batch in lake.drain(maxRowsPerTrigger=1) if batch["numInputRows"]]
    assert sizes == [5, 5], "a row of many jobs is never parted"


def test_large_batches_end_at_a_known_place(lake: Lake, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(12):
        many(database, 2_000, jobs=10)
    database.execute("ANALYZE leasequeue_leaseevent")
    monkeypatch.setattr(stream, "COUNTED", 5_000)
    reader = stream.EventStream(Options(lake.source.options, STREAM, "stream"), lake.stream().schema)
    start = reader.initialOffset()
    end = reader._latest(start, 5_000)
    until = (end["txid"], end["id"])
    row = database.execute("SELECT count(*) FROM leasequeue_jobevent WHERE (txid, event) <= (%s, %s)", until).fetchone()
    # A page holds fewer than a tenth of that.
    assert 4_500 <= row[0] < 5_000


def test_many_slices_of_one_batch(lake: Lake, database: Database) -> None:
    many(database, 20_000)
    for number in range(20):
        event(database, seq=20_001 + number)
    lake.drain(rowsPerPartition=1_000)
    assert lake.seqs() == list(range(1, 20_021))
    assert len(list((lake.path / "events").glob("*.parquet"))) > 3


@needs_limits
def test_idle_traffic_makes_no_batches(lake: Lake, database: Database) -> None:
    event(database, seq=1)
    lake.drain()
    for _ in range(5):
        database.execute("SELECT pg_current_xact_id()")
    assert sum(batch["numInputRows"] for batch in lake.drain()) == 0
    assert len(list((lake.path / "checkpoint" / "offsets").glob("[0-9]*"))) == 1


def test_writers_at_work_lose_nothing(lake: Lake, test_dsn: str, database: Database) -> None:
    stop = threading.Event()

    def write(writer: int) -> None:
        with psycopg.connect(test_dsn) as connection:
            number = 0
            while not stop.is_set():
                for _ in range(5):
                    number += 1
                    event(connection, seq=number, node=f"w{writer}")
                if number % 3 == 0:
                    connection.rollback()
                else:
                    connection.commit()
                time.sleep(0.02)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            lake.drain(**limited(2_000))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    lake.drain()
    in_database = database.execute("SELECT count(*), sum(id) FROM leasequeue_jobevent").fetchone()
    assert lake.read().agg(f.count("id"), f.sum("id")).first() == in_database
    assert lake.read().agg(f.countDistinct("id")).first()[0] == in_database[0]


@needs_limits
def test_the_consumer_is_seen_and_holds_retention(lake: Lake, database: Database, settings: Any) -> None:
    settings.LEASEQUEUE = {**getattr(settings, "LEASEQUEUE", {}), "EVENT_RETENTION_DAYS": 0.000001}
    event(database, seq=1, id=10, occurred_at=OLD)
    lake.drain(consumer="lake")
    consumer = LakeConsumer.objects.get()
    txid = database.execute("SELECT txid FROM leasequeue_leaseevent").fetchone()
    assert consumer.txid >= txid[0]  # the last batch is reported as well
    first = consumer.moved_at
    event(database, seq=2, id=20, occurred_at=OLD)
    drawn(510_000)
    database.execute("UPDATE leasequeue_lakeconsumer SET txid = %s - 1", [txid[0]])
    with connect("default") as connection:
        assert "lake consumers" in partitions.maintain(connection).held.values()
        lake.drain(consumer="lake")
        consumer.refresh_from_db()
        assert consumer.moved_at > first
        assert lake.seqs() == [1, 2]
        assert partitions._needs(connection)["lake consumers"] > txid[0]


def test_a_consumer_that_was_given_up_goes_on(lake: Lake, database: Database, settings: Any, caplog: Any) -> None:
    settings.LEASEQUEUE = {**getattr(settings, "LEASEQUEUE", {}), "LAKE": {"CONSUMER_LIMIT_DAYS": 1}}
    event(database, seq=1)
    lake.drain(consumer="lake")
    database.execute("UPDATE leasequeue_lakeconsumer SET seen_at = seen_at - interval '2 days'")
    with connect("default") as connection:
        assert "lake consumers" not in partitions._needs(connection)
    assert "waits for it no longer" in caplog.text
    # Nothing was dropped: it goes on, and is waited for again.
    event(database, seq=2)
    lake.drain(consumer="lake")
    assert lake.seqs() == [1, 2]
    assert LakeConsumer.objects.get().overtaken_at is None


@needs_limits
def test_where_a_new_stream_may_start(lake: Lake, source: Source, database: Database, tmp_path: Path) -> None:
    event(database, seq=1)
    lake.drain(consumer="lake")
    event(database, seq=2)
    again = Lake(source, tmp_path / "again")
    again.drain(consumer="lake", startingOffset="consumer")
    assert again.seqs() == [2]
    latest = Lake(source, tmp_path / "latest")
    latest.drain(startingOffset="latest")
    event(database, seq=3)
    latest.drain(startingOffset="latest")
    assert latest.seqs() == [3]


@pytest.fixture
def query(test_dsn: str) -> Query:
    if not LIMITS:
        pytest.skip("pyspark 4.1 asks for the end otherwise")
    return Query(test_dsn)


@pytest.fixture
def retention(settings: Any) -> Iterator[Any]:
    """Drop what is full: everything that is old enough, in rows numbered below 500,000."""
    settings.LEASEQUEUE = {**getattr(settings, "LEASEQUEUE", {}), "EVENT_RETENTION_DAYS": 1}

    def drop() -> list[str]:
        drawn(510_000)
        with connect("default") as connection:
            return partitions.maintain(connection).dropped

    yield drop
    put_back()


def old(database: Database, seq: int, number: int) -> None:
    event(database, seq=seq, id=number, occurred_at=OLD)


def test_what_was_dropped_unread_is_named_and_going_on_noted(query: Query, database: Database, retention: Any) -> None:
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


def test_nothing_is_lost_where_all_was_read(query: Query, database: Database, retention: Any, test_dsn: str) -> None:
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


def test_a_long_transactions_event_is_missed(query: Query, database: Database, retention: Any, test_dsn: str) -> None:
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


def test_partitions_that_were_dropped_by_hand(query: Query, database: Database, retention: Any) -> None:
    old(database, 1, 10)
    query.drain()
    old(database, 2, 20)
    database.execute("DROP TABLE leasequeue_leaseevent_p0")
    drawn(510_000)
    event(database, seq=3)
    with pytest.raises(StreamInterrupted, match="it was not retention"):
        query.drain()
    assert query.drain(failOnDataLoss="false") == 1
    event(database, seq=4)
    assert query.drain() == 1


def test_rows_that_were_deleted_by_hand(query: Query, database: Database, test_dsn: str) -> None:
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


def test_what_is_dropped_between_planning_and_reading_is_seen(query: Query, database: Database, retention: Any) -> None:
    old(database, 1, 10)
    query.drain()
    old(database, 2, 20)
    reader = query.reader()
    end = reader.latestOffset(query.checkpoint, reader.getDefaultReadLimit())
    (planned,) = reader.partitions(query.checkpoint, end)
    assert retention()
    with pytest.raises(StreamInterrupted, match="while they were read"):
        list(reader.read(planned))


def test_another_past_is_refused(query: Query, database: Database) -> None:
    event(database, seq=1)
    query.drain()
    query.checkpoint |= {"txid": 99_999_999_999}
    event(database, seq=2)
    with pytest.raises(StreamInterrupted, match="an earlier copy"):
        query.drain()


def test_another_system_is_refused_unless_this_database_was_there(query: Query, database: Database) -> None:
    event(database, seq=1)
    query.drain()
    query.checkpoint |= {"system": "1"}
    event(database, seq=2)
    with pytest.raises(StreamInterrupted, match="does not name the checkpoint's"):
        query.drain()
    rows(Timeline).create(timeline=0, head=2, mark=1, sealed=1, horizon=1, noted_at=timezone.now(), system="1")
    note_here(database)
    query.drain()
    assert query.seqs == [1, 2]


def test_a_copy_is_not_read_before_its_epoch_has_begun(query: Query, database: Database) -> None:
    """Events of transactions that are yet to come, then a reaper's row that another transaction wrote than it names."""
    event(database, seq=1)
    query.drain()
    event(database, seq=2)
    database.execute("INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, seqs, kind)"
                     " VALUES (99999999999, now(), 1, 3, 3, '{3}', 1)")  # fmt: skip
    with pytest.raises(StreamInterrupted, match=r"1 rows of the lease log lie above.*leasequeue_restored"):
        query.drain()
    rows(Timeline).create(timeline=1, head=2, mark=1, sealed=1, horizon=1, noted_at=timezone.now())
    with pytest.raises(StreamInterrupted, match="restored from a copy"):
        query.drain()


def note_here(connection: Database) -> None:
    """Note the timeline as a reaper does that has worked here all the time."""
    ConnectionExecutor(connection).fetch("epoch_note", {})


def test_after_a_failover_the_stream_reads_again_what_may_be_lost(query: Query, database: Database) -> None:
    event(database, seq=1)
    (kept,) = database.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    event(database, seq=2)
    query.drain()
    query.checkpoint |= {"timeline": 0}
    rows(Timeline).create(timeline=0, head=2, mark=kept, sealed=1, horizon=kept, noted_at=timezone.now())
    note_here(database)
    event(database, seq=3)
    with pytest.raises(StreamInterrupted, match=f"may have lost events that .* from transaction {kept} on"):
        query.drain()
    query.drain(resetAfterFailover="true")
    event(database, seq=4)
    query.drain()
    assert query.seqs == [1, 2, 2, 3, 4]


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
        writers = [threading.Thread(target=write_on, args=(dsn, stop)) for _ in range(2)]
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


def write_on(dsn: str, stop: threading.Event) -> None:
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not stop.is_set():
                many(connection, 20, jobs=5)
    except psycopg.OperationalError:
        return


class FakeTime:
    """A clock that only rests move."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.rests: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(
    ("niceness", "written", "rests"),
    [(10, 12, [1.5]), (10, 8, []), (0, 12, [])],
    ids=["busy", "quiet", "not told to step back"],
)
def test_a_reader_that_steps_back_rests_while_the_queue_is_busy(
    test_dsn: str, monkeypatch: pytest.MonkeyPatch, niceness: int, written: int, rests: list[float]
) -> None:
    clock = FakeTime()
    monkeypatch.setattr(stream, "time", clock)
    monkeypatch.setattr(stream, "_last", (0.0, 0, 0.0))
    monkeypatch.setattr(stream.os, "nice", lambda more: niceness)
    with psycopg.connect(test_dsn, autocommit=True) as connection:
        stream.give_way(connection)
        clock.now += 0.5  # the work of a slice
        for _ in range(written):
            connection.execute("SELECT pg_current_xact_id()")
        stream.give_way(connection)
        assert clock.rests == pytest.approx(rests)


def test_a_rest_is_for_the_work_before_it_and_not_for_a_pause_of_the_stream(
    test_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeTime()
    monkeypatch.setattr(stream, "time", clock)
    monkeypatch.setattr(stream, "_last", (0.0, 0, 0.0))
    monkeypatch.setattr(stream.os, "nice", lambda more: 10)
    monkeypatch.setattr(stream, "BUSY", 0)
    with psycopg.connect(test_dsn, autocommit=True) as connection:
        stream.give_way(connection)
        for seconds in (60.0, 0.25):
            clock.now += seconds
            connection.execute("SELECT pg_current_xact_id()")
            stream.give_way(connection)
    assert clock.rests == pytest.approx([stream.REST * stream.WORK, stream.REST * 0.25])

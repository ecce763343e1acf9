"""The stream: every event once, whatever the writers, the readers and the machine do."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.utils import timezone
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from django_leasequeue.engine import partitions
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import LakeConsumer, Timeline
from django_leasequeue.spark import stream
from django_leasequeue.spark.database import STREAM, Options
from tests.spark.conftest import Source
from tests.spark.helpers import at, event, many
from tests.support.rows import rows

pytestmark = pytest.mark.django_db(transaction=True)

SCHEMA = "id bigint, txid bigint, seq bigint, node string"
#: pyspark 4.1 asks for the end of the log without saying where the stream stands (docs/reference/lake.md).
LIMITS = stream.SupportsTriggerAvailableNow is not None
needs_limits = pytest.mark.skipif(not LIMITS, reason="pyspark 4.1 knows no limits of a batch, and lags by one")


def limited(rows: int) -> dict[str, object]:
    """The option that limits a batch, where there is one."""
    return {"maxRowsPerTrigger": rows} if LIMITS else {}


class Lake:
    """A stream into Parquet, run until it has read what there is."""

    def __init__(self, source: Source, path: Path) -> None:
        self.source = source
        self.path = path

    def stream(self, **options: object) -> DataFrame:
        words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
        reader = self.source.session.readStream.format("leasequeue").options(**self.source.options, **words)
        return reader.schema(SCHEMA).load()

    def drain(self, **options: object) -> list[dict[str, Any]]:
        writer = self.stream(**options).writeStream.format("parquet").option("path", str(self.path / "events"))
        query = writer.option("checkpointLocation", str(self.path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(600)
        return list(query.recentProgress)

    def seqs(self) -> list[int]:
        return sorted(row.seq for row in self.source.session.read.parquet(str(self.path / "events")).collect())

    def read(self) -> DataFrame:
        return self.source.session.read.parquet(str(self.path / "events"))


@pytest.fixture
def lake(source: Source, tmp_path: Path) -> Lake:
    return Lake(source, tmp_path)


def test_uncommitted_lower_numbers_come_later_and_rolled_back_ones_never(
    lake: Lake, database: psycopg.Connection[Any], test_dsn: str
) -> None:
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
def test_a_transaction_id_that_gains_a_digit(lake: Lake, database: psycopg.Connection[Any]) -> None:
    for txid in (9, 10, 99, 100, 101):
        event(database, seq=txid, txid=txid)
        lake.drain(maxRowsPerTrigger=1)
    assert lake.seqs() == [9, 10, 99, 100, 101]


@needs_limits
def test_a_batch_is_limited_and_nothing_is_lost_between_batches(lake: Lake, database: psycopg.Connection[Any]) -> None:
    for _ in range(3):
        many(database, 1_000)  # one transaction of many rows is cut as well
    batches = lake.drain(maxRowsPerTrigger=700)

    assert [batch["numInputRows"] for batch in batches if batch["numInputRows"]] == [700, 700, 700, 700, 200]
    frame = lake.read()
    assert frame.agg(f.count("id"), f.countDistinct("id")).first() == (3_000, 3_000)
    many(database, 10, jobs=5)
    sizes = [batch["numInputRows"] for batch in lake.drain(maxRowsPerTrigger=1) if batch["numInputRows"]]
    assert sizes == [5, 5], "a row of many jobs is never parted"


def test_large_batches_end_at_a_place_that_is_known(
    lake: Lake, database: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_many_slices_of_one_batch(lake: Lake, database: psycopg.Connection[Any]) -> None:
    many(database, 20_000)
    for number in range(20):
        event(database, seq=20_001 + number)
    lake.drain(rowsPerPartition=1_000)
    assert lake.seqs() == list(range(1, 20_021))
    assert len(list((lake.path / "events").glob("*.parquet"))) > 3


@needs_limits
def test_idle_traffic_makes_no_batches(lake: Lake, database: psycopg.Connection[Any]) -> None:
    event(database, seq=1)
    lake.drain()
    for _ in range(5):
        database.execute("SELECT pg_current_xact_id()")
    assert sum(batch["numInputRows"] for batch in lake.drain()) == 0
    assert len(list((lake.path / "checkpoint" / "offsets").glob("[0-9]*"))) == 1


def test_writers_at_work_lose_nothing(lake: Lake, test_dsn: str, database: psycopg.Connection[Any]) -> None:
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


@pytest.mark.parametrize("what", ["horizon", "system"])
def test_a_horizon_that_went_backwards_or_another_system_is_refused(
    lake: Lake, database: psycopg.Connection[Any], what: str
) -> None:
    event(database, seq=1)
    lake.drain()
    offsets = lake.path / "checkpoint" / "offsets" / "0"
    text = offsets.read_text()
    if what == "horizon":
        old, new = text.split('"txid":')[1].split(",")[0].split("}")[0].strip(), "99999999999"
    else:
        ((old,),) = database.execute("SELECT system_identifier::text FROM pg_control_system()").fetchall()
        new = "1"
    offsets.write_text(text.replace(old, new))
    for checksum in offsets.parent.glob(".*.crc"):
        checksum.unlink()
    event(database, seq=2)
    said = "restored from a dump" if what == "horizon" else "another system identifier"
    with pytest.raises(StreamingQueryException, match=said):
        lake.drain()
    if what == "system":
        lake.drain(acceptSystemChange=True)
        assert lake.seqs() == [1, 2]


def test_after_a_failover_the_stream_reads_again_what_may_be_lost(
    lake: Lake, database: psycopg.Connection[Any]
) -> None:
    event(database, seq=1)
    (kept,) = database.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    event(database, seq=2)
    lake.drain()
    offsets = lake.path / "checkpoint" / "offsets" / "0"
    offsets.write_text(offsets.read_text().replace('"timeline": 1', '"timeline": 0'))
    for checksum in offsets.parent.glob(".*.crc"):
        checksum.unlink()
    rows(Timeline).create(timeline=0, head=2, mark=kept, sealed=1, horizon=kept, noted_at=timezone.now())
    event(database, seq=3)

    with pytest.raises(StreamingQueryException, match=f"may have lost events that .* from transaction {kept} on"):
        lake.drain()
    lake.drain(resetAfterFailover=True)
    event(database, seq=4)
    lake.drain()
    assert lake.seqs() == [1, 2, 2, 3, 4]


@needs_limits
def test_the_consumer_is_seen_and_holds_retention(lake: Lake, database: psycopg.Connection[Any], settings: Any) -> None:
    settings.LEASEQUEUE = {**getattr(settings, "LEASEQUEUE", {}), "EVENT_RETENTION_DAYS": 0.000001}
    event(database, seq=1, id=10, occurred_at=at(-10 * 365 * 86_400))
    lake.drain(consumer="lake")
    consumer = LakeConsumer.objects.get()
    txid = database.execute("SELECT txid FROM leasequeue_leaseevent").fetchone()
    assert consumer.txid >= txid[0]  # the last batch is reported as well
    first = consumer.moved_at

    event(database, seq=2, id=20, occurred_at=at(-10 * 365 * 86_400))
    database.execute("SELECT setval(pg_get_serial_sequence('leasequeue_leaseevent', 'id'), 510000)")
    database.execute("UPDATE leasequeue_lakeconsumer SET txid = %s - 1", [txid[0]])
    connection = connect("default")
    try:
        assert "lake consumers" in partitions.maintain(connection).held.values()
        lake.drain(consumer="lake")
        consumer.refresh_from_db()
        assert consumer.moved_at > first
        assert lake.seqs() == [1, 2]
        assert partitions._needs(connection)["lake consumers"] > txid[0]
    finally:
        connection.close()


def test_a_consumer_that_was_given_up_goes_on_where_nothing_was_dropped(
    lake: Lake, database: psycopg.Connection[Any], settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.LEASEQUEUE = {**getattr(settings, "LEASEQUEUE", {}), "LAKE": {"CONSUMER_LIMIT_DAYS": 1}}
    event(database, seq=1)
    lake.drain(consumer="lake")
    database.execute("UPDATE leasequeue_lakeconsumer SET seen_at = seen_at - interval '2 days'")
    connection = connect("default")
    try:
        assert "lake consumers" not in partitions._needs(connection)
    finally:
        connection.close()
    assert "waits for it no longer" in caplog.text

    # Nothing was dropped: it goes on, and is waited for again.
    event(database, seq=2)
    lake.drain(consumer="lake")
    assert lake.seqs() == [1, 2]
    assert LakeConsumer.objects.get().overtaken_at is None


@needs_limits
def test_a_new_stream_may_start_at_the_end_or_where_its_consumer_was(
    lake: Lake, source: Source, database: psycopg.Connection[Any], tmp_path: Path
) -> None:
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

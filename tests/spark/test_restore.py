"""A lake whose database is restored into another cluster: it goes on, or says what it has that the dump lacks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, NewJob
from django_leasequeue.spark.slices import StreamInterrupted
from tests.conftest import HOME
from tests.spark.query import LIMITS, Query
from tests.support.restoring import POSTGRES_15, age, begin, dump, note, note_on, restore
from tests.support.temporary_server import TemporaryServer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not LIMITS, reason="pyspark 4.1 asks for the end otherwise")]

Row = tuple[int, int, int]


def enqueue_on(dsn: str, stop: threading.Event) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        executor = ConnectionExecutor(connection)
        while not stop.is_set():
            with connection.transaction():  # some in a savepoint, as Django's nested blocks have it
                executor.run(engine.enqueue("jobs", [NewJob(1)]))
                with connection.transaction():
                    executor.run(engine.enqueue("jobs", [NewJob(2), NewJob(3)]))


@contextmanager
def load(dsn: str, *, noting: bool = True) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=enqueue_on, args=(dsn, stop)) for _ in range(2)]
    threads += [threading.Thread(target=note_on, args=(dsn, stop))] if noting else []
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def events(dsn: str) -> list[Row]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT id, txid, seq FROM leasequeue_jobevent").fetchall()


def read_on(query: Query) -> None:
    """Read some batches while others write: under load a stream has no end."""
    reader = query.reader(consumer="lake")
    for _ in range(5):
        query.step(reader)
        time.sleep(0.2)


@pytest.fixture(params=["18", pytest.param("15", marks=pytest.mark.skipif(
    not POSTGRES_15.is_dir(), reason="PostgreSQL 15 is not installed"))])  # fmt: skip
def old(request: pytest.FixtureRequest) -> Iterator[TemporaryServer]:
    with TemporaryServer(HOME, migrated=True, bin_dir=POSTGRES_15 if request.param == "15" else None) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            ConnectionExecutor(connection).run(engine.create("jobs"))
        age(server)
        yield server


def test_a_dump_of_all_that_was_read_goes_on(
    old: TemporaryServer, private_server: TemporaryServer, tmp_path: Path
) -> None:
    """Web processes are there before the reaper; a lake under load before and after has every event once."""
    query, new = Query(old.url()), private_server
    with load(old.url()):
        read_on(query)
    query.drain(consumer="lake")
    before = list(query.rows)
    assert sorted(before) == sorted(events(old.url()))
    dump(old, tmp_path / "dump", new.bin_dir)
    restore(tmp_path / "dump", new)
    after = Query(new.url())
    after.checkpoint, after.rows = query.checkpoint, before
    with load(new.url(), noting=False):
        time.sleep(1)
        with pytest.raises(StreamInterrupted, match=r"[\d,]+ rows of the lease log lie above the horizon"):
            after.drain(consumer="lake")
        assert note(new.url())
        while True:
            try:
                begun = begin(new.url())
                break
            except psycopg.errors.LockNotAvailable:
                pass
        assert begun is not None
        assert begun.moved > 0
        read_on(after)
    after.drain(consumer="lake")
    assert Counter(after.rows) == Counter(events(new.url()))
    assert after.rows[: len(query.rows)] == query.rows


def test_a_dump_that_lacks_what_was_read_is_told(
    old: TemporaryServer, private_server: TemporaryServer, tmp_path: Path
) -> None:
    query, new = Query(old.url()), private_server
    with load(old.url()):
        read_on(query)
        dump(old, tmp_path / "dump", new.bin_dir)
        read_on(query)
    restore(tmp_path / "dump", new)
    begin(new.url())
    with load(new.url()):
        time.sleep(1)
    after = Query(new.url())
    after.checkpoint = query.checkpoint
    with pytest.raises(StreamInterrupted, match=r"\(timeline 1 before, timeline 1 of epoch 1 now\) may have lost"):
        after.drain()
    after.drain(resetAfterFailover="true")
    assert len(set(after.rows)) == len(after.rows)
    there = set(events(new.url()))
    assert set(query.rows) | set(after.rows) >= there
    # Only what may have been lost came again.
    again = sorted(txid for _, txid, _ in set(query.rows) & set(after.rows))
    first_lost = min(txid for _, txid, _ in set(query.rows) - there)
    assert again == [] or again[0] >= min(txid for _, txid, _ in after.rows)
    assert min(txid for _, txid, _ in after.rows) <= first_lost


def test_retention_waits_for_a_consumer_across_the_restore(
    old: TemporaryServer, private_server: TemporaryServer, tmp_path: Path
) -> None:
    query, new = Query(old.url()), private_server
    with load(old.url()):
        time.sleep(0.5)
    query.drain(consumer="lake")
    query.drain(consumer="lake")
    dump(old, tmp_path / "dump", new.bin_dir)
    restore(tmp_path / "dump", new)
    begin(new.url())
    with load(new.url()):
        time.sleep(0.5)
    with psycopg.connect(new.url(), autocommit=True) as connection:
        executor = ConnectionExecutor(connection)
        ((need, _),) = executor.fetch("lake/consumer_need", {"seconds": None})
        ((name, transactions, seconds, given_up),) = executor.fetch("lake_lag", {"size": 10})
    assert need <= min(row[1] for row in set(events(new.url())) - set(query.rows))
    assert (name, given_up) == ("lake", False)
    assert 0 < transactions < 1_000_000
    assert 0 < seconds < 600

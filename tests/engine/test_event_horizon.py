"""What readers of the lease log were told stays true when the server crashes: nothing is gone, nothing is skipped."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from django_leasequeue.spark import slices
from django_leasequeue.spark.slices import MAX_ID, START, Point
from tests.support.temporary_server import TemporaryServer

pytestmark = pytest.mark.chaos

WRITE = """
INSERT INTO leasequeue_leaseevent (occurred_at, queue_id, low, high, kind, seqs)
VALUES (clock_timestamp(), 1, %(n)s, %(n)s, 2, ARRAY[%(n)s]::bigint[])
"""
READ = "SELECT r.txid, r.id FROM leasequeue_leaseevent r WHERE (r.txid, r.id) > (%s, %s) AND r.txid < %s ORDER BY 1, 2"


@contextmanager
def writing(server: TemporaryServer) -> Iterator[threading.Event]:
    """Write as claims do, without waiting for the disk, until the server is gone."""
    begun = threading.Event()

    def write() -> None:
        try:
            with server.connect() as connection:
                connection.execute("SET synchronous_commit = off")
                number = 0
                while True:
                    number += 1
                    connection.execute(WRITE, {"n": number})
                    if number == 20:
                        begun.set()
        except psycopg.OperationalError:
            return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield begun
    finally:
        thread.join(60)
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_reader_across_crashes(migrated_server: TemporaryServer) -> None:
    with migrated_server.connect() as connection:
        # The WAL is written when somebody asks, or has written much.
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        connection.execute("SELECT pg_reload_conf()")
    read: list[tuple[int, int]] = []
    after = START
    for _ in range(3):
        with writing(migrated_server) as begun:
            assert begun.wait(30)
            with migrated_server.connect() as connection:
                for _ in range(5):
                    until = slices.horizon(connection)
                    read += connection.execute(READ, [*after, until.xmin]).fetchall()
                    after = Point(until.xmin - 1, MAX_ID)
            migrated_server.stop("immediate")
        migrated_server.start()
        with migrated_server.connect() as connection:
            there = set(connection.execute(READ, [0, 0, 2**62]).fetchall())
            assert set(read) <= there, "what was read is gone"
    with migrated_server.connect() as connection:
        read += connection.execute(READ, [*after, slices.horizon(connection).xmin]).fetchall()
        assert read == connection.execute(READ, [0, 0, 2**62]).fetchall(), "something was skipped"
    assert len(read) > 60

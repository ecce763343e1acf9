"""A database that is restored to a point in time: a base backup, and the WAL up to that point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.devdb.server import Server
from django_leasequeue.engine import ConnectionExecutor, NewJob, epoch
from django_leasequeue.engine.topics import log
from django_leasequeue.engine.topics.log import Sealer
from django_leasequeue.exceptions import LogTruncated
from tests.conftest import HOME
from tests.engine.helpers import NODE
from tests.support.environment import child_environment, python
from tests.support.restoring import POSTGRES_15, archive, base_backup, recover, switch_wal
from tests.support.temporary_server import TemporaryServer

pytestmark = [pytest.mark.slow, pytest.mark.release]  # servers start five times, and WAL is archived

#: Where each job is, which it is, and whether its payload is there.
PLACES = """
    SELECT seq, 'ready', queue_id FROM leasequeue_ready UNION ALL SELECT seq, 'record', queue_id FROM leasequeue_record
    UNION ALL SELECT unnest(seqs), 'leased', queue_id FROM leasequeue_claim
    UNION ALL SELECT seq, 'result', queue_id FROM leasequeue_jobresult ORDER BY 1
"""
EVENTS = "SELECT txid, id, kind, seqs FROM leasequeue_leaseevent ORDER BY txid, id"


class Database:
    """Short words for what a test does with the database of a server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def run(self, work: Any) -> Any:
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            return ConnectionExecutor(connection).run(work)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url()) as connection:
            return connection.execute(query).fetchall()

    def put(self, *data: object, queue: str = "jobs") -> list[int]:
        return [job.seq for job in self.run(engine.enqueue(queue, [NewJob(item) for item in data]))]

    def claim(self, size: int, lease_ms: int = 3_600_000) -> list[int]:
        return [job.seq for job in self.run(engine.claim("jobs", NODE, size, lease_ms=lease_ms))]

    def note(self) -> bool:
        """What the reaper does each second."""
        return bool(self.run(log.note_timeline()))


@pytest.fixture(params=["18", pytest.param("15", marks=pytest.mark.skipif(
    not POSTGRES_15.is_dir(), reason="PostgreSQL 15 is not installed"))])  # fmt: skip
def server(request: pytest.FixtureRequest) -> Iterator[TemporaryServer]:
    with TemporaryServer(HOME, migrated=True, bin_dir=POSTGRES_15 if request.param == "15" else None) as one:
        yield one


def test_what_stood_at_the_point_stands_there_and_goes_on(server: TemporaryServer) -> None:
    old, seals = Database(server), Sealer()
    directory = archive(server)
    old.run(engine.create("jobs", result_ttl_ms=3_600_000))
    old.run(engine.create("log", preset="topics", type="log"))
    first = old.put(1, 2, 3)
    old.note()
    backup = base_backup(server)
    try:
        (done,) = old.claim(1)
        old.run(engine.ack([done], NODE))
        (held,) = old.claim(1)
        waiting = first[2:] + old.put(4, 5)
        old.put("kept", queue="log")
        for _ in range(2):
            old.note()
        kept = old.run(log.read("log", seals=seals))
        places, events = old.rows(PLACES), old.rows(EVENTS)
        old.rows("SELECT pg_create_restore_point('before')")

        lost = old.put(6, 7)
        assert old.claim(1) == waiting[:1]
        old.run(engine.ack([held, waiting[0]], NODE))
        old.put("lost", queue="log")
        ahead = old.run(log.read("log", after=kept.cursor, timeline=kept.timeline, seals=seals))
        assert [record.data for record in ahead.records] == ["lost"]
        switch_wal(server)
        server.stop()

        recover(backup, directory, "before")
        new = Database(backup)
        assert new.rows(PLACES) == places
        assert new.rows(EVENTS) == events
        with psycopg.connect(backup.url(), autocommit=True) as connection:
            assert epoch.begin(connection) is None, "the transactions are the same server's"
        assert (new.note(), new.run(epoch.above_horizon())) == (False, None)
        # The lease of before holds, and what ended after the point runs a second time.
        again = new.put(8, 9)
        assert min(again) > max(seq for seq, *_ in places), "no number of a job that is there"
        assert new.claim(10) == waiting + again
        new.run(engine.ack([held, *waiting, *again], NODE))
        assert not set(lost) & {seq for seq, *_ in new.rows(PLACES)} - set(again)
        found = new.rows(EVENTS)
        assert found[: len(events)] == events, "what comes later comes behind all that was there"
        # A reader that was further hears of it; one that was not goes on.
        new.put("new", queue="log")
        with pytest.raises(LogTruncated):
            new.run(log.read("log", after=ahead.cursor, timeline=ahead.timeline))
        page = new.run(log.read("log", after=kept.cursor, timeline=kept.timeline))
        assert ([record.data for record in page.records], page.timeline) == (["new"], kept.timeline + 1)
        verified = python("-m", "django", "leasequeue_verify", env=child_environment(backup.url()))
        assert " 0 differences" in verified.stdout, verified.stdout + verified.stderr
    finally:
        backup.stop()

"""A database that is restored to a point in time: a base backup, and the WAL up to that point."""

from collections.abc import Iterator
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.devdb.server import Server
from django_leasequeue.engine import epoch
from django_leasequeue.engine.topics import log
from django_leasequeue.engine.topics.log import Sealer
from django_leasequeue.exceptions import LogTruncated
from tests.conftest import HOME
from tests.engine.helpers import NODE
from tests.engine.servers import begin, enqueue, events, executor, note, run
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


def rows(server: Server, query: str) -> list[tuple[Any, ...]]:
    with executor(server) as own:
        return own.connection.execute(query).fetchall()


def claim(server: Server, size: int) -> list[int]:
    return [job.seq for job in run(server, engine.claim("jobs", NODE, size, lease_ms=3_600_000))]


@pytest.fixture(params=["18", pytest.param("15", marks=pytest.mark.skipif(
    not POSTGRES_15.is_dir(), reason="PostgreSQL 15 is not installed"))])  # fmt: skip
def server(request: pytest.FixtureRequest) -> Iterator[TemporaryServer]:
    with TemporaryServer(HOME, migrated=True, bin_dir=POSTGRES_15 if request.param == "15" else None) as one:
        yield one


def test_what_stood_at_the_point_stands_there_and_goes_on(server: TemporaryServer) -> None:
    seals = Sealer()
    directory = archive(server)
    run(server, engine.create("jobs", result_ttl_ms=3_600_000))
    run(server, engine.create("log", preset="topics", type="log"))
    first = enqueue(server, 1, 2, 3)
    note(server)
    backup = base_backup(server)
    try:
        (done,) = claim(server, 1)
        run(server, engine.ack([done], NODE))
        (held,) = claim(server, 1)
        waiting = first[2:] + enqueue(server, 4, 5)
        enqueue(server, "kept", queue="log")
        for _ in range(2):
            note(server)
        kept = run(server, log.read("log", seals=seals))
        places, logged = rows(server, PLACES), events(server)
        rows(server, "SELECT pg_create_restore_point('before')")

        lost = enqueue(server, 6, 7)
        assert claim(server, 1) == waiting[:1]
        run(server, engine.ack([held, waiting[0]], NODE))
        enqueue(server, "lost", queue="log")
        ahead = run(server, log.read("log", after=kept.cursor, timeline=kept.timeline, seals=seals))
        assert [record.data for record in ahead.records] == ["lost"]
        switch_wal(server)
        server.stop()

        recover(backup, directory, "before")
        assert rows(backup, PLACES) == places
        assert events(backup) == logged
        assert begin(backup) is None, "the transactions are the same server's"
        assert (note(backup), run(backup, epoch.above_horizon())) == (False, None)
        # The lease of before holds, and what ended after the point runs a second time.
        again = enqueue(backup, 8, 9)
        assert min(again) > max(seq for seq, *_ in places), "no number of a job that is there"
        assert claim(backup, 10) == waiting + again
        run(backup, engine.ack([held, *waiting, *again], NODE))
        assert not set(lost) & {seq for seq, *_ in rows(backup, PLACES)} - set(again)
        found = events(backup)
        assert found[: len(logged)] == logged, "what comes later comes behind all that was there"
        # A reader that was further hears of it; one that was not goes on.
        enqueue(backup, "new", queue="log")
        with pytest.raises(LogTruncated):
            run(backup, log.read("log", after=ahead.cursor, timeline=ahead.timeline))
        page = run(backup, log.read("log", after=kept.cursor, timeline=kept.timeline))
        assert ([record.data for record in page.records], page.timeline) == (["new"], kept.timeline + 1)
        verified = python("-m", "django", "leasequeue_verify", env=child_environment(backup.url()))
        assert " 0 differences" in verified.stdout, verified.stdout + verified.stderr
    finally:
        backup.stop()

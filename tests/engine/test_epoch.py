"""A database whose rows were copied elsewhere: an epoch begins, and readers of the log go on where they stand."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, NewJob, epoch
from django_leasequeue.engine.topics import log
from django_leasequeue.engine.topics.log import Sealer
from django_leasequeue.exceptions import LogTruncated
from django_leasequeue.metrics import figures
from django_leasequeue.words import TXID_BITS
from tests.conftest import HOME
from tests.engine.servers import begin, enqueue, events, executor, note, run
from tests.support.restoring import POSTGRES_15, age, dump, restore, upgrade
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def made(server: TemporaryServer) -> TemporaryServer:
    """Jobs, a log, and a reaper that has noted how far all is."""
    run(server, engine.create("jobs"))
    run(server, engine.create("log", preset="topics", type="log"))
    age(server)
    enqueue(server, 1, 2)
    enqueue(server, "a", "b", queue="log")
    note(server)
    note(server)
    return server


@pytest.fixture(scope="module")
def old() -> Iterator[TemporaryServer]:
    with TemporaryServer(HOME, migrated=True) as server:
        yield made(server)


@pytest.fixture
def new(old: TemporaryServer, private_server: TemporaryServer, tmp_path: Path) -> TemporaryServer:
    """A server with lower transaction ids into which the other was restored."""
    dump(old, tmp_path / "dump")
    restore(tmp_path / "dump", private_server)
    return private_server


@pytest.mark.sample
def test_what_is_written_after_a_restore_comes_after_all_that_was_copied(
    old: TemporaryServer, new: TemporaryServer
) -> None:
    copied = events(old)
    assert events(new) == copied
    assert run(new, epoch.above_horizon()) == len(copied)
    early = enqueue(new, 3)  # a web process that was faster than the reaper
    assert events(new)[0][2] == early, "before all others, and a reader would pass over it"
    assert note(new)
    assert begin(new) == (1, 1, [])
    late = enqueue(new, 4)
    found = events(new)
    assert found[: len(copied)] == copied
    assert [seqs for *_, seqs in found[len(copied) :]] == [early, late]
    assert run(new, epoch.above_horizon()) is None
    assert (note(new), begin(new)) == (False, None), "once is enough"
    with executor(new) as own:
        ((horizon, *_),) = own.fetch("lake/horizon", {})
    assert horizon > found[-1][0]


def test_writers_that_hold_plans_write_the_new_epoch(new: TemporaryServer) -> None:
    """A session that has prepared the statement, and one that waits while the epoch begins."""
    with executor(new) as own:
        own.connection.prepare_threshold = 0
        for _ in range(3):
            own.run(engine.enqueue("jobs", [NewJob(1)]))
        assert begin(new) is not None
        own.run(engine.enqueue("jobs", [NewJob(2)]))
    found = events(new)
    assert [txid >> TXID_BITS for txid, *_ in found[-4:]] == [1, 1, 1, 1]


def test_an_open_transaction_that_has_written_delays_the_epoch(new: TemporaryServer) -> None:
    with psycopg.connect(new.url()) as writer:
        ConnectionExecutor(writer).run(engine.enqueue("jobs", [NewJob("open")]))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            begin(new)
        enqueue(new, "meanwhile")
        writer.commit()
    assert begin(new) == (1, 2, [])
    assert [txid >> TXID_BITS for txid, *_ in events(new)[-2:]] == [1, 1]


def test_only_the_owner_begins_it(new: TemporaryServer) -> None:
    with psycopg.connect(new.url(), autocommit=True) as connection:
        connection.execute("CREATE ROLE app")
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO app")
        connection.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app")
        connection.execute("SET ROLE app")
        assert ConnectionExecutor(connection).run(log.note_timeline())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            epoch.begin(connection)


def test_a_second_restore_begins_a_second_epoch(new: TemporaryServer, tmp_path: Path) -> None:
    begin(new)
    third = enqueue(new, 3)
    note(new)
    note(new)
    dump(new, tmp_path / "second")
    with TemporaryServer(HOME) as newest:
        restore(tmp_path / "second", newest)
        assert note(newest)
        assert begin(newest) == (2, 0, [])
        fourth = enqueue(newest, 4)
        assert [seqs for *_, seqs in events(newest)[-2:]] == [third, fourth]


def test_a_copy_of_the_files_goes_on(old: TemporaryServer) -> None:
    """The template of a database, a base backup and a promoted standby have the same transactions."""
    with psycopg.connect(old.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE twin TEMPLATE leasequeue")
    with psycopg.connect(old.url("twin"), autocommit=True) as connection:
        assert not ConnectionExecutor(connection).run(log.note_timeline())
        assert epoch.begin(connection) is None


def test_a_reader_of_a_topic_goes_on_or_hears_that_it_was_further(
    old: TemporaryServer, private_server: TemporaryServer, tmp_path: Path
) -> None:
    seals = Sealer()
    kept = run(old, log.read("log", seals=seals))
    dump(old, tmp_path / "dump")
    enqueue(old, "lost", queue="log")
    ahead = run(old, log.read("log", after=kept.cursor, timeline=kept.timeline, seals=seals))
    assert [record.data for record in ahead.records] == ["lost"]
    restore(tmp_path / "dump", private_server)
    begin(private_server)
    (seq,) = enqueue(private_server, "new", queue="log")
    assert seq == ahead.cursor, "the number was given twice"
    with pytest.raises(LogTruncated):
        run(private_server, log.read("log", after=ahead.cursor, timeline=ahead.timeline))
    page = run(private_server, log.read("log", after=kept.cursor, timeline=kept.timeline))
    assert [record.data for record in page.records] == ["new"]
    assert (page.reset_to, page.timeline) == (None, kept.timeline + 2**32)


def test_counters_count_nothing_twice(new: TemporaryServer) -> None:
    """Scrapes before the epoch begins leave out what is above the horizon, and count it once afterwards."""

    def count(before: figures.LogCounts | None) -> figures.LogCounts:
        return run(new, figures.look(before, 10)).log

    def enqueued(found: figures.LogCounts) -> int:
        return sum(jobs for (_, event), jobs in found.events.items() if event == "enqueued")

    look = run(new, figures.look(None, 10))
    assert look.above > 0
    first = count(None)
    assert enqueued(first) == 0
    enqueue(new, 3)
    second = count(first)
    assert [enqueued(second), enqueued(count(second))] == [1, 1]
    begin(new)
    third = count(second)
    total = len({seq for *_, seqs in events(new) for seq in seqs}) - 2  # the log's records have no events of the kind
    assert enqueued(third) == enqueued(count(third)) >= total
    assert run(new, figures.look(third, 10)).above == 0
    # A picture of a server that was further is none.
    ahead = third._replace(snapshot=f"{1 << TXID_BITS} 999999:999999:")
    assert enqueued(count(ahead)) == enqueued(third)


@pytest.mark.skipif(not POSTGRES_15.is_dir(), reason="PostgreSQL 15 is not installed")
def test_a_dump_of_15_into_18(tmp_path: Path) -> None:
    with TemporaryServer(HOME, migrated=True, bin_dir=POSTGRES_15) as old, TemporaryServer(HOME) as new:
        made(old)
        dump(old, tmp_path / "dump", new.bin_dir)
        restore(tmp_path / "dump", new)
        copied = events(old)
        assert note(new)
        assert begin(new) is not None
        enqueue(new, 3)
        assert events(new)[: len(copied)] == copied


@pytest.mark.skipif(not POSTGRES_15.is_dir(), reason="PostgreSQL 15 is not installed")
def test_pg_upgrade_of_15_to_18() -> None:
    """It keeps transaction ids, and gives another system identifier: an epoch begins, and nothing is moved."""
    with TemporaryServer(HOME, migrated=True, bin_dir=POSTGRES_15) as old, TemporaryServer(HOME) as new:
        made(old)
        seals = Sealer()
        before, kept = events(old), run(old, log.read("log", seals=seals))
        upgrade(old, new)
        assert events(new) == before
        enqueue(new, 3)
        assert note(new)
        assert begin(new) == (1, 0, [])
        late = enqueue(new, 4)
        assert events(new)[: len(before)] == before
        assert events(new)[-1][2] == late
        page = run(new, log.read("log", after=kept.cursor, timeline=kept.timeline))
        assert (page.records, page.reset_to) == ([], None)


def test_a_copy_by_logical_replication(migrated_server: TemporaryServer) -> None:
    """Sequences are not replicated: they are set forward, and new jobs come behind those that were copied."""
    old = migrated_server
    with executor(old) as own:
        own.connection.execute("ALTER SYSTEM SET wal_level = logical")
    old.stop()
    old.start()
    last = made(old) and enqueue(old, 3)[0]
    with executor(old) as own, TemporaryServer(HOME, migrated=True) as new, executor(new) as there:
        tables = own.connection.execute(
            "SELECT string_agg(relname, ', ') FROM pg_class WHERE relname LIKE 'leasequeue\\_%'"
            " AND relkind IN ('r', 'p') AND NOT relispartition AND relpersistence = 'p'"
        ).fetchone()
        assert tables is not None
        there.connection.execute(f"TRUNCATE {tables[0]}")
        own.connection.execute(f"CREATE PUBLICATION copy FOR TABLE {tables[0]} WITH (publish_via_partition_root)")
        there.connection.execute(f"CREATE SUBSCRIPTION copy CONNECTION '{old.conninfo()}' PUBLICATION copy")
        eventually(lambda: events(new) == events(old))
        late = enqueue(old, 4)
        note(old)
        eventually(lambda: len(events(new)) == len(events(old)) and events(new)[-1][2] == late)
        copied = events(old)
        there.connection.execute("DROP SUBSCRIPTION copy")
        begun = begin(new)
        assert begun is not None
        assert {"public.leasequeue_job_seq_seq", "public.leasequeue_leaseevent_id_seq"} <= set(begun.sequences)
        (seq,) = enqueue(new, 5)
        assert seq > late[0] > last
        assert events(new)[: len(copied)] == copied
        assert events(new)[-1][2] == [seq]

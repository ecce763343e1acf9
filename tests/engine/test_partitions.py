"""Partitions of the lease log: made ahead, dropped by retention, held back by readers; no event is ever lost."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import IntegrityError, transaction
from psycopg import sql

from django_leasequeue import engine
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine import partitions
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import LeaseEvent
from django_leasequeue.sql import statement
from django_leasequeue.words import named
from tests.engine.helpers import enqueue, make, open_transaction, run
from tests.engine.lease_log import FIRST, drawn, put_back
from tests.support.rows import rows

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _log_as_migrated(transactional_db: None) -> Iterator[None]:
    """The lease log is put back as the migration made it: the database belongs to the whole suite.

    Before as well: a worker of an earlier test may have done the reaper's duties.
    """
    put_back()
    yield
    partitions._holds.clear()
    put_back()


@pytest.fixture
def log(settings) -> Iterator[partitions.Connection]:
    """A connection of the log's keeper; partitions of 100 numbers from 1,500,000 on, the numbers stand before them."""
    settings.LEASEQUEUE = {"EVENT_PARTITION_ROWS": 100, "EVENT_PARTITIONS_AHEAD": 3, "EVENT_RETENTION_DAYS": 7}
    make("work")
    drawn(1_499_990)
    with connect("default") as own, engine_clock.hold(engine_clock.Clock(NOW)):
        yield own


@pytest.fixture
def reader() -> Iterator[str]:
    run("CREATE ROLE tests_reader LOGIN; CREATE ROLE tests_team; GRANT tests_team TO tests_reader")
    yield "tests_reader"
    run("DROP OWNED BY tests_reader, tests_team; DROP ROLE tests_reader, tests_team")


def names(*lows: int) -> list[str]:
    return [f"leasequeue_leaseevent_p{low}" for low in lows]


def lows(own: partitions.Connection) -> list[int]:
    return [partition.low for partition in partitions.read_layout(own).partitions]


def write(count: int, days_ago: float = 0) -> None:
    """Write rows of that age: one a task name."""
    with engine_clock.hold(engine_clock.Clock(NOW - timedelta(days=days_ago))):
        enqueue(*[engine.NewJob(name=f"task-{n}") for n in range(count)])


def in_default() -> int:
    with connect("default") as own:
        return partitions.default_rows(own)


def test_the_migration_makes_three_and_a_default() -> None:
    with connect("default") as own:
        layout = partitions.read_layout(own)
    assert [(item.low, item.high) for item in layout.partitions] == [(low, low + 500_000) for low in FIRST]
    assert [item.name for item in layout.partitions] == names(*FIRST)
    assert not layout.default_used


def test_partitions_are_made_ahead_with_the_indexes_of_the_log_and_take_the_events(log) -> None:
    made = partitions.maintain(log).made
    assert made == names(1_500_000, 1_500_100, 1_500_200)
    found = log.execute("SELECT indexdef FROM pg_indexes WHERE tablename = %s", made[:1]).fetchall()
    assert sorted(text.split("USING ")[1].split(" WITH")[0] for (text,) in found) == [
        "brin (low, high)", "brin (occurred_at)", "brin (txid)",
    ]  # fmt: skip
    assert all("pages_per_range='8'" in text for (text,) in found)
    stored = log.execute("SELECT reloptions FROM pg_class WHERE relname = %s", made[:1]).fetchone()
    assert stored == (["toast_tuple_target=8160"],)
    assert partitions.maintain(log).made == []
    write(150)
    assert partitions.maintain(log).made == names(1_500_300, 1_500_400)
    assert in_default() == 0
    assert LeaseEvent.objects.filter(id__gte=1_500_100).count() == 41
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        rows(LeaseEvent).filter(id__gte=1_500_100).delete()


def test_numbers_that_outran_the_partitions_are_kept_in_the_default_one(log, caplog) -> None:
    write(45)
    assert in_default() == 36
    done = partitions.maintain(log)
    assert done.default_used
    assert done.made == names(1_500_100, 1_500_200, 1_500_300)
    write(100)
    assert in_default() == 100, "the rest of the range stays where it began"
    assert LeaseEvent.objects.count() == 145
    assert partitions.maintain(log).made == names(1_500_400)


def test_old_closed_partitions_go_oldest_first(log) -> None:
    partitions.maintain(log)
    write(9, days_ago=30)
    write(100, days_ago=20)
    write(100, days_ago=3)
    partitions.maintain(log)
    assert (lows(log)[0], LeaseEvent.objects.count()) == (1_500_100, 100)
    with engine_clock.hold(engine_clock.Clock(NOW + timedelta(days=10))):
        write(5, days_ago=-10)
        assert partitions.maintain(log).dropped == names(1_500_100)
    assert LeaseEvent.objects.count() == 5


def test_the_partition_that_is_written_to_stays_however_old_it_is_and_all_without_retention(log, settings) -> None:
    drawn(1_500_095)
    assert partitions.maintain(log).made[:1] == names(1_500_200), "not right before the numbers reach it"
    write(130, days_ago=30)
    partitions.maintain(log)
    assert 1_500_200 in lows(log)
    settings.LEASEQUEUE = {**settings.LEASEQUEUE, "EVENT_RETENTION_DAYS": 0}
    write(300, days_ago=3_000)
    assert partitions.maintain(log).dropped == []


def test_one_young_event_keeps_its_partition_and_all_behind_it(log) -> None:
    write(3)
    assert partitions.maintain(log).dropped == names(0, 500_000), "empty"
    write(200, days_ago=30)
    assert partitions.maintain(log).dropped == []
    assert lows(log)[0] == 1_000_000


def test_old_events_in_the_default_partition_go_all_at_once(log) -> None:
    write(109, days_ago=30)
    write(1, days_ago=2)
    assert in_default() == 101
    partitions.maintain(log)
    assert in_default() == 101
    with engine_clock.hold(engine_clock.Clock(NOW + timedelta(days=6))):
        assert "default" in partitions.maintain(log).dropped
    assert in_default() == 0


def test_a_reader_holds_back_what_it_has_not_read_and_all_if_it_cannot_say(log, caplog) -> None:
    partitions.maintain(log)
    write(10, days_ago=30)
    write(150, days_ago=30)
    txid = LeaseEvent.objects.order_by("-id").values_list("txid", flat=True)[0]
    need: list[int | None] = []
    partitions.hold_back("lake", lambda own: need[0])
    for _ in range(2):
        done = partitions.maintain(log)
        assert (done.dropped, done.held) == ([], dict.fromkeys(names(1_000_000), "lake"))
        assert ("Reader lake of the lease log cannot say what it needs" in caplog.text) is (need == [])
        caplog.clear()
        need[:] = [0]
    for number, low in ((txid, 1_000_000), (txid + 1, 1_500_000)):
        need[0] = number
        assert partitions.maintain(log).dropped == names(low)
    assert partitions.maintain(log).held == {}
    write(100, days_ago=30)
    need[0] = None
    assert partitions.maintain(log).dropped == names(1_500_100), "it needs nothing"


def test_a_writer_in_the_way_is_not_waited_for(log) -> None:
    partitions.maintain(log)
    write(109, days_ago=30)
    with open_transaction() as other:
        other.run(engine.enqueue("work", [engine.NewJob()]))
        done = partitions.maintain(log)
        assert (bool(done.busy), done.dropped) == (True, [])
        # And whoever writes meanwhile is not stopped.
        write(1)
    assert set(names(1_000_000)) <= set(partitions.maintain(log).dropped)


def test_a_reader_of_the_whole_log_delays_new_partitions_only(log) -> None:
    with open_transaction() as other:
        other.connection.execute("SELECT count(*) FROM leasequeue_leaseevent")
        assert partitions.maintain(log).busy[:1] == names(1_500_000)
        write(20)
    assert partitions.maintain(log).made == names(1_500_100, 1_500_200, 1_500_300)
    assert LeaseEvent.objects.count() == 20


def test_two_keepers_do_not_get_in_each_others_way(log) -> None:
    with open_transaction() as other:
        other.connection.execute(named("SELECT pg_advisory_xact_lock({lock.partitions}, 0)"))
        assert partitions.maintain(log) == ([], [], {}, [], False)
    assert len(partitions.maintain(log).made) == 3


def test_what_an_interrupted_round_left_is_dropped_and_nothing_else(log) -> None:
    partitions.maintain(log)
    interrupted, kept = names(1_500_000, 1_500_100)
    for name in (interrupted, kept):
        log.execute(f"ALTER TABLE leasequeue_leaseevent DETACH PARTITION {name}")
    log.execute(f"COMMENT ON TABLE {interrupted} IS '{partitions.MARK}'")
    assert interrupted in partitions.maintain(log).dropped
    log.execute(f"DROP TABLE {kept}")  # an operator detached this one to keep it


def test_a_late_writer_saves_its_partition(log) -> None:
    """An event that comes between the first look and the lock: its writer drew the number long ago."""
    partitions.maintain(log)
    write(109, days_ago=30)
    transactions = iter(["grants", "drop"])

    def write_late(executor: object) -> None:
        if next(transactions) == "drop":
            rows(LeaseEvent).create(id=1_499_999, txid=1, occurred_at=NOW, queue_id=1, low=1, high=1, seqs=[1], kind=1)

    assert partitions.maintain(log, write_late).dropped == []
    assert lows(log)[0] == 1_000_000
    assert LeaseEvent.objects.filter(txid=1).exists()


def test_a_role_that_does_not_own_the_log_says_so(log, reader: str) -> None:
    run(
        f"GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO {reader};"
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {reader};"
        f"GRANT CREATE ON SCHEMA public TO {reader}"
    )
    log.execute(f"SET ROLE {reader}")
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be owner"):
            partitions.maintain(log)
    finally:
        log.execute("RESET ROLE")


def may_read(role: str) -> dict[str, bool]:
    """Return whether a role reads the log, and each partition by its own name, by doing it."""
    with connect("default") as own:
        tables = ["leasequeue_leaseevent", "leasequeue_leaseevent_default", *names(*lows(own))]
        own.execute(f"SET SESSION AUTHORIZATION {role}")
        found = {}
        for name in tables:
            try:
                own.execute(f"SELECT count(*) FROM {name}")
                found[name] = True
            except psycopg.errors.InsufficientPrivilege:
                found[name] = False
    return found


@pytest.mark.parametrize("grantee", ["tests_reader", "tests_team", "PUBLIC"])
def test_rights_that_are_given_or_taken_later_reach_the_partitions_that_are_there(log, reader, grantee) -> None:
    partitions.maintain(log)
    assert set(may_read(reader).values()) == {False}
    run(f"GRANT SELECT ON leasequeue_leaseevent TO {grantee}")
    # By the log's own name at once; by their own names from the next round on.
    assert [name for name, may in may_read(reader).items() if may] == ["leasequeue_leaseevent"]
    drawn(1_500_100)
    done = partitions.maintain(log)
    assert (len(done.made), done.busy) == (2, [])
    assert set(may_read(reader).values()) == {True}, "new partitions as well"
    query = "SELECT oid, xmin FROM pg_class WHERE relname LIKE 'leasequeue_leaseevent%' ORDER BY oid"
    before = log.execute(query).fetchall()
    assert log.execute(statement("event_grants")).fetchall() == []
    partitions.maintain(log)
    assert log.execute(query).fetchall() == before, "rights that are as they should be are left alone"
    run(f"REVOKE SELECT ON leasequeue_leaseevent FROM {grantee}")
    partitions.maintain(log)
    assert set(may_read(reader).values()) == {False}


@pytest.mark.slow
def test_a_role_that_is_dropped_or_granted_to_meanwhile_delays_the_rights_only(log, reader, monkeypatch) -> None:
    run(f"GRANT SELECT ON leasequeue_leaseevent TO {reader}")
    real = partitions._ddl

    def late(connection, name, **parts) -> None:
        if name == "event_partition_grant":
            parts["grantee"] = sql.Identifier("tests_gone")
        real(connection, name, **parts)

    partitions.maintain(log)
    run("REVOKE SELECT ON leasequeue_leaseevent_default FROM tests_reader")
    with monkeypatch.context() as patch:
        patch.setattr(partitions, "_ddl", late)
        assert partitions.maintain(log).busy == ["grants"]
    assert partitions.maintain(log).busy == []
    assert set(may_read(reader).values()) == {True}

"""The reaper's vacuum: when dead rows of waiting jobs are in the way, and only then."""

from collections.abc import Iterator

import psycopg
import pytest

from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.reaper import Duty, Reaper, tables
from tests.engine.helpers import make, open_transaction, put, run
from tests.reaper.conftest import leading, tick

#: What the test calls many; half of it is few. Sessions of tests before may report some dead rows late.
MANY = 80
VACUUM = "VACUUM leasequeue_delayed, leasequeue_member"


@pytest.fixture
def reaper(transactional_db: None, clock: engine_clock.Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reaper]:
    monkeypatch.setattr(tables, "DEAD", MANY)
    run(VACUUM)
    with leading(Duty("vacuum", tables.Vacuum(), 1.0)) as made:
        yield made


def vacuums() -> int:
    """Vacuums of the table so far that somebody asked for."""
    return int(run("SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'leasequeue_delayed'")[0][0])


def leave_dead(count: int) -> None:
    """Delayed jobs that are gone again, known to the statistics."""
    put(count, delay_ms=60_000)
    for statement in ("DELETE FROM leasequeue_delayed", "SELECT pg_stat_force_next_flush()", "SELECT 1"):
        run(statement)


def vacuums_of_a_look(reaper: Reaper) -> int:
    """Vacuums in the duty's next turn."""
    before = vacuums()
    assert tick(reaper, seconds=1) == ["vacuum"]
    return vacuums() - before


def test_many_dead_rows_are_vacuumed_and_few_are_left(reaper: Reaper) -> None:
    make()
    leave_dead(MANY // 2)
    assert vacuums_of_a_look(reaper) == 0
    leave_dead(MANY // 2)
    assert vacuums_of_a_look(reaper) == 1
    assert vacuums_of_a_look(reaper) == 0


def test_what_a_transaction_elsewhere_keeps_is_not_vacuumed_again_and_again(reaper: Reaper) -> None:
    make()
    with open_transaction() as other:
        other.connection.execute("SELECT pg_current_xact_id()")
        leave_dead(MANY)
        assert vacuums_of_a_look(reaper) == 1
        leave_dead(MANY // 2)
        assert vacuums_of_a_look(reaper) == 0
        leave_dead(MANY)
        assert vacuums_of_a_look(reaper) == 1
    assert vacuums_of_a_look(reaper) == 0
    run(VACUUM)  # as autovacuum does
    assert vacuums_of_a_look(reaper) == 0
    leave_dead(MANY)
    assert vacuums_of_a_look(reaper) == 1


def test_large_tables_are_left_to_autovacuum(reaper: Reaper, monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    monkeypatch.setattr(tables, "LARGE", 10)
    put(20, delay_ms=60_000)
    run("ANALYZE leasequeue_delayed")
    leave_dead(MANY)
    assert vacuums_of_a_look(reaper) == 0


def test_another_vacuum_is_not_waited_for(reaper: Reaper, test_dsn: str) -> None:
    make()
    leave_dead(MANY)
    with psycopg.connect(test_dsn) as other:
        other.execute("LOCK TABLE leasequeue_delayed IN SHARE UPDATE EXCLUSIVE MODE")
        assert vacuums_of_a_look(reaper) == 0


def test_a_role_that_does_not_own_the_tables_asks_for_no_vacuum(reaper: Reaper) -> None:
    make()
    leave_dead(MANY)
    own, refused = reaper._shift.connection, list[str]()
    own.add_notice_handler(lambda diagnostic: refused.append(diagnostic.message_primary or ""))
    own.execute("CREATE ROLE tests_reaper")
    try:
        own.execute("SET ROLE tests_reaper")
        assert vacuums_of_a_look(reaper) == 0
        assert refused == []
    finally:
        own.execute("RESET ROLE")
        own.execute("DROP ROLE tests_reaper")
    assert vacuums_of_a_look(reaper) == 1

"""What the ends of limited jobs leave: a function behind a trigger, into which no plan of a statement looks."""

import json
from typing import Any

import psycopg
import pytest

from .filling import IDS, LEASED
from .regimes import SIZES, STATISTICS, Meter, Plan, check

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]


def end(connection: psycopg.Connection, seqs: list[int]) -> None:
    connection.execute("SELECT leasequeue_leave_turns(%s, 128, %s::bigint[])", [IDS["busy"], seqs])


def left(connection: psycopg.Connection) -> list[int]:
    """The jobs that turns name."""
    query = "SELECT unnest(seqs) AS seq FROM leasequeue_flowturn WHERE kind = 2 ORDER BY seq"
    return [seq for (seq,) in connection.execute(query).fetchall()]


@pytest.mark.parametrize("others_wait", [True, False], ids=["others wait", "none waits"])
@pytest.mark.parametrize("size", [SIZES[0], SIZES[-1]])
@pytest.mark.parametrize("statistics", STATISTICS)
def test_pages(connection: psycopg.Connection, statistics: str, size: int, others_wait: bool) -> None:
    seqs = list(range(LEASED, LEASED + size))
    if not others_wait:
        connection.execute("DELETE FROM leasequeue_member WHERE waits")
    for change in STATISTICS[statistics]:
        connection.execute(change)
    had, meter = left(connection), Meter(connection, host=False)
    before = sum(meter.pages().values())
    end(connection, seqs)
    pages = sum(meter.pages().values()) - before
    assert left(connection) == sorted([*had, *seqs])
    assert pages <= 30 + 15 * size


@pytest.mark.parametrize("others_wait", [True, False], ids=["others wait", "none waits"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_read_whole_or_compared_with_itself(
    full_tables: psycopg.Connection, size: int, others_wait: bool
) -> None:
    seqs = list(range(LEASED, LEASED + size))
    plans: list[Plan] = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        said = (diagnostic.message_primary or "").partition("plan:")[2]
        if said:
            found: dict[str, Any] = json.loads(said)
            plans.append(Plan(found["Query Text"], found["Plan"]))

    with full_tables.transaction(force_rollback=True):
        try:
            full_tables.execute("LOAD 'auto_explain'")
        except psycopg.errors.UndefinedFile:
            pytest.skip("this PostgreSQL has no auto_explain")
        if not others_wait:
            full_tables.execute("DELETE FROM leasequeue_member WHERE waits")
        full_tables.add_notice_handler(note)
        full_tables.execute(
            "SET LOCAL client_min_messages = notice; SET LOCAL auto_explain.log_level = notice;"
            " SET LOCAL auto_explain.log_min_duration = 0; SET LOCAL auto_explain.log_analyze = on;"
            " SET LOCAL auto_explain.log_timing = off; SET LOCAL auto_explain.log_nested_statements = on;"
            " SET LOCAL auto_explain.log_format = json"
        )
        end(full_tables, seqs)
        full_tables.remove_notice_handler(note)
    assert len(plans) >= 2
    check(plans, size)

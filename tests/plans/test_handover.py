"""How slots pass on when limited jobs end: a function behind a trigger, into which no plan of a statement looks."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from django_leasequeue.engine.runner import STEADY

from .filling import LEASED, NOW
from .regimes import SIZES, STATISTICS, Meter, Plan, check, host_connection

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

BUSY = 900_001


def end(connection: psycopg.Connection, seqs: list[int], *, others_wait: bool) -> None:
    """Give jobs that have slots of keys with five a result; let others wait for these keys, or not."""
    connection.execute("UPDATE leasequeue_limit SET rate = NULL, per_ms = NULL")
    connection.execute("UPDATE leasequeue_limitkey SET fits = 5 WHERE id <= 1000")
    connection.execute(
        "INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries,"
        " state, node) SELECT s, %(queue)s, s, %(now)s, %(now)s, %(now)s, 1, 1, 'n' FROM unnest(%(seqs)s::bigint[]) s",
        {"queue": BUSY, "now": NOW, "seqs": seqs},
    )
    if not others_wait:
        connection.execute("DELETE FROM leasequeue_member WHERE waits")
    connection.execute("SELECT set_config('leasequeue.alone', 'ended', true)")


def pass_on(connection: psycopg.Connection, seqs: list[int]) -> None:
    connection.execute("SELECT leasequeue_left(%s, 128, %s::bigint[])", [BUSY, seqs])


def taken(connection: psycopg.Connection) -> int:
    ((count,),) = connection.execute("SELECT count(*) FROM leasequeue_member WHERE taken").fetchall()
    return int(count)


@pytest.fixture(params=["own", "host"])
def connection(request: pytest.FixtureRequest, full_tables: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A connection of our own or a host's, in a transaction that is rolled back."""
    with ExitStack() as stack:
        found = full_tables if request.param == "own" else stack.enter_context(host_connection())
        stack.enter_context(found.transaction(force_rollback=True))
        if request.param == "host":
            found.execute(STEADY)
        yield found


@pytest.mark.parametrize("others_wait", [True, False], ids=["others wait", "none waits"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("statistics", STATISTICS)
def test_pages(connection: psycopg.Connection, statistics: str, size: int, others_wait: bool) -> None:
    seqs = list(range(LEASED, LEASED + size))
    end(connection, seqs, others_wait=others_wait)
    for change in STATISTICS[statistics]:
        connection.execute(change)
    meter, had = Meter(connection, host=False), taken(connection)
    before = sum(meter.pages().values())
    pass_on(connection, seqs)
    pages = sum(meter.pages().values()) - before
    assert taken(connection) == (had if others_wait else had - size)
    assert pages <= 100 + 55 * size


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
        end(full_tables, seqs, others_wait=others_wait)
        full_tables.add_notice_handler(note)
        full_tables.execute(
            "SET LOCAL client_min_messages = notice; SET LOCAL auto_explain.log_level = notice;"
            " SET LOCAL auto_explain.log_min_duration = 0; SET LOCAL auto_explain.log_analyze = on;"
            " SET LOCAL auto_explain.log_timing = off; SET LOCAL auto_explain.log_nested_statements = on;"
            " SET LOCAL auto_explain.log_format = json"
        )
        pass_on(full_tables, seqs)
        full_tables.remove_notice_handler(note)
    assert len(plans) >= 3
    check(plans, size)

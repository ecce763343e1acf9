"""Under a snapshot that somebody holds, dead index entries stay: the floor saves readers from walking over them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine.pool import connect

from .conftest import NOW, Tables
from .explain import Explaining, Plan

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

DEAD = 30_000


@pytest.fixture(scope="module")
def drained(tables: Tables, django_db_blocker) -> Iterator[Tables]:
    """A queue whose first 30,000 jobs were done while a report was running; 500 new ones wait behind them."""
    with django_db_blocker.unblock(), connect("default") as report:
        tables.queue("drained")
        tables.fill("drained", DEAD)
        tables.fill("drained", DEAD, 1, due=True)
        first = tables.start["drained-0-1 hour"]
        report.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        report.autocommit = False
        report.execute("SELECT count(*) FROM leasequeue_job")
        tables.connection.execute("DELETE FROM leasequeue_job WHERE seq >= %s AND seq < %s", [first, first + 2 * DEAD])
        tables.fill("drained", 500)
        # Claims that were over and swept.
        tables.connection.execute(
            "INSERT INTO leasequeue_claim (id, queue_id, deadline, created_at, ttl_ms, grace_ms, node, seqs)"
            " SELECT 20000000 + n, %s, %s::timestamptz - n * interval '1 ms', %s, 1, 0, 'n', '{1}'"
            " FROM generate_series(1, 20000) AS n",
            [tables.ids["drained"], NOW, NOW],
        )
        tables.connection.execute("DELETE FROM leasequeue_claim WHERE queue_id = %s", [tables.ids["drained"]])
        tables.connection.execute("ANALYZE leasequeue_job")
        yield tables
        report.rollback()


def claims(tables: Tables, size: int, *, floors: bool) -> Plan:
    with connect("default") as connection, connection.transaction(force_rollback=True):
        if floors:
            connection.execute(
                "UPDATE leasequeue_queuefloor f SET value = CASE f.kind"
                " WHEN 0 THEN (SELECT min(position) FROM leasequeue_job WHERE queue_id = f.queue_id AND state = 0)"
                " ELSE extract(epoch FROM %s::timestamptz) * 1000000 END WHERE queue_id = %s",
                [NOW, tables.ids["drained"]],
            )
        executor = Explaining(connection)
        assert len(executor.run(engine.claim("drained", "n", size))) == size
        return executor.plan("claim")


@pytest.mark.parametrize("size", [1, 200])
def test_a_claim_with_floors_does_not_walk_over_them(drained: Tables, size: int) -> None:
    without, with_floors = claims(drained, size, floors=False), claims(drained, size, floors=True)
    own = 40 * size + 100  # what taking and writing the batch itself needs
    assert without.blocks > 400
    assert with_floors.blocks < own
    assert without.blocks - with_floors.blocks > 300, f"{without.blocks} {with_floors.blocks}"


def test_neither_do_sweep_promote_and_the_reaper(drained: Tables) -> None:
    queue = drained.ids["drained"]
    with connect("default") as connection, connection.transaction(force_rollback=True):
        executor = Explaining(connection)
        executor.run(engine.sweep([queue]))
        executor.run(engine.promote([queue]))
        slow = {name: executor.plan(name).blocks for name in ("sweep", "promote")}
        connection.execute(
            "UPDATE leasequeue_queuefloor f SET rechecked_at = %s, value = CASE f.kind"
            " WHEN 0 THEN (SELECT min(position) FROM leasequeue_job WHERE queue_id = f.queue_id AND state = 0)"
            " ELSE extract(epoch FROM %s::timestamptz) * 1000000 END WHERE queue_id = %s",
            [NOW, NOW, queue],
        )
        executor.plans.clear()
        executor.run(engine.sweep([queue]))
        executor.run(engine.promote([queue]))
        executor.run(engine.advance_floors([queue]))
        plans = {name: executor.plan(name) for name in ("sweep", "promote", "floor")}
    assert min(slow.values()) > 100
    for name, plan in plans.items():
        assert plan.blocks < 60, f"{name} {plan.blocks}\n{plan.text()}"

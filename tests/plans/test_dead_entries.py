"""Under a snapshot that somebody holds, dead index entries stay: the floor saves readers from walking over them."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, clock
from django_leasequeue.engine.leases.floor import ClaimCursor, Proposals
from django_leasequeue.engine.pool import connect

from .filling import CLAIMS, DELAYED, IDS, JOBS, NOW, READY, empty_database, fill_queues
from .regimes import Explaining

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

DEAD = 30_000
QUEUE = IDS["other"]

#: Delayed jobs and leases are long due.
GIVEN = {"queue": QUEUE, "name": "other", "now": NOW, "ranks": 1, "stale": False, "lane": 2, "step": "-1 minute"}
GIVEN |= {"lease": "-1 hour", "size": 1, "flags": 0, "node": "n", "deliveries": 1}
FLOORS = """
INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
SELECT %(queue)s, kind, 0, CASE kind WHEN 0 THEN %(first)s::bigint
    ELSE (extract(epoch FROM %(now)s::timestamptz - interval '10 s') * 1000000)::bigint END, %(now)s
FROM (VALUES (0), (1), (2)) AS k(kind)
"""


@pytest.fixture(scope="module")
def drained(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A queue whose first 30,000 jobs were done while a report was running; 500 new ones wait behind them."""
    with empty_database(django_db_blocker) as connection, connect("default") as report:
        fill_queues(connection)
        cursor = psycopg.ClientCursor(connection)
        for text in (JOBS, READY, DELAYED, CLAIMS):
            cursor.execute(text, {**GIVEN, "first": 1, "count": DEAD})
        connection.execute("INSERT INTO leasequeue_queuerank (queue_id, rank) VALUES (%s, 0)", [QUEUE])
        report.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        report.autocommit = False
        report.execute("SELECT count(*) FROM leasequeue_job")
        connection.execute("SET session_replication_role = replica")
        for table in ("job", "ready", "delayed", "claim"):
            connection.execute(f"DELETE FROM leasequeue_{table}")
        connection.execute("RESET session_replication_role")
        for text in (JOBS, READY):
            cursor.execute(text, {**GIVEN, "first": DEAD + 1, "count": 500})
        connection.execute("ANALYZE")
        yield
        report.rollback()


@pytest.fixture
def explaining(drained: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Explaining]:
    with django_db_blocker.unblock(), clock.hold(clock.Clock(NOW)), connect("default") as connection:
        with connection.transaction(force_rollback=True):
            yield Explaining(connection)


def raise_floors(explaining: Explaining) -> None:
    psycopg.ClientCursor(explaining.connection).execute(FLOORS, {"queue": QUEUE, "now": NOW, "first": DEAD + 1})
    explaining.plans.clear()


def blocks(explaining: Explaining, *names: str) -> int:
    return sum(plan.blocks for plan in explaining.plans if plan.name in names)


@pytest.mark.parametrize("size", [1, 200])
def test_a_claim_with_floors_does_not_walk_over_them(explaining: Explaining, size: int) -> None:
    def read() -> int:
        explaining.plans.clear()
        with explaining.connection.transaction(force_rollback=True):
            jobs = explaining.run(engine.claim("other", "n", size))
        assert [job.seq for job in jobs] == list(range(DEAD + 1, DEAD + 1 + size))
        return blocks(explaining, "claim_look", "claim")

    without = read()
    raise_floors(explaining)
    # What taking and writing the batch itself needs.
    assert read() < 20 * size + 100
    assert without - read() > 300


def test_a_claimer_that_looked_before_does_not_walk_over_them(drained: None, django_db_blocker: Any) -> None:
    """Its own looks tell it where live jobs begin, before the floors that all share are raised."""
    read = []
    with django_db_blocker.unblock(), clock.hold(clock.Clock(NOW)), connect("default") as connection:
        # A transaction that explains has an id before it looks, and would propose nothing.
        explaining, plain = Explaining(connection), ConnectionExecutor(connection)
        raise_floors(explaining)
        connection.execute("DELETE FROM leasequeue_queuefloor WHERE kind = 0")
        cursor = ClaimCursor(max_age=0.0)
        for executor in (explaining, plain, plain, plain, explaining):
            explaining.plans.clear()
            with connection.transaction(force_rollback=True):
                assert len(executor.run(engine.claim("other", "n", 1, cursor=cursor))) == 1
            read.append(blocks(explaining, "claim_look", "claim"))
        connection.execute("DELETE FROM leasequeue_queuefloor")
    assert read[0] - read[-1] > 300, read
    assert read[-1] < 120, read


def test_neither_do_sweep_promote_and_the_reaper(explaining: Explaining) -> None:
    def look() -> dict[str, int]:
        explaining.plans.clear()
        explaining.run(engine.sweep([QUEUE]))
        explaining.run(engine.promote([QUEUE]))
        explaining.run(engine.advance_floors(Proposals(), [QUEUE]))
        return {name: blocks(explaining, name) for name in ("sweep", "promote", "floor")}

    slow = look()
    raise_floors(explaining)
    fast = look()
    assert min(slow.values()) > 100, slow
    assert max(fast.values()) < 60, fast


LOOKS: dict[str, Callable[[Explaining], object]] = {
    "list_ready": lambda own: own.run(engine.list_jobs("other", "ready")),
    "list_delayed": lambda own: own.run(engine.list_jobs("other", "delayed")),
    "list_leased": lambda own: own.run(engine.list_jobs("other", "leased")),
    "queue_counts": lambda own: own.run(engine.counts("other")),
    "queue_state": lambda own: own.run(engine.state("other")),
    "due_leases": lambda own: own.fetch("due_leases", {}),
    "due_delayed": lambda own: own.fetch("due_delayed", {}),
}


@pytest.mark.parametrize("name", LOOKS)
def test_nor_does_who_only_looks(explaining: Explaining, name: str) -> None:
    LOOKS[name](explaining)
    slow = blocks(explaining, name)
    raise_floors(explaining)
    LOOKS[name](explaining)
    assert slow - blocks(explaining, name) > 100

"""Under a snapshot that somebody holds, dead index entries stay: the floor saves readers from walking over them."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, clock
from django_leasequeue.engine.dead import search, triage
from django_leasequeue.engine.dead.bulkoperation import active_operations, change_operation, run_batch, start_operation
from django_leasequeue.engine.dead.filter import from_query
from django_leasequeue.engine.leases.floor import ClaimCursor, Proposals
from django_leasequeue.engine.pool import connect

from .filling import CLAIMS, DELAYED, IDS, JOBS, NOW, READY, empty_database, fill_queues
from .regimes import Explaining, Plan

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


# Triage


@pytest.fixture(autouse=True)
def _alone_and_patient(explaining: Explaining, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triage, "PATIENCE", 1e9)  # explaining takes its time
    explaining.connection.execute("UPDATE leasequeue_bulkoperation SET state = 'done' WHERE state = 'running'")


def check(plan: Plan, *indexes: str, rows: int) -> None:
    assert plan.whole_tables == [], plan.text()
    assert plan.indexes >= {f"leasequeue_{index}" for index in indexes}, plan.text()
    assert plan.table_rows() <= rows, plan.text()
    assert plan.compared <= max(rows, 100), plan.text()


def test_groups(explaining: Explaining) -> None:
    """As many probes as there are groups; the counts once through the index."""
    found = explaining.run(triage.dead_groups(from_query(""), size=20))
    assert (len(found.groups), found.exact) == (20, True)
    groups = explaining.plan("dead_groups").root["Actual Rows"]
    check(explaining.plan("dead_groups"), "dead_cause", rows=4 * groups + 100)
    check(explaining.plan("dead_group_counts"), "dead_size", rows=40_000 + 2 * groups + 100)


@pytest.mark.parametrize("query", [
    "text=error number 77", "payload=data.kwargs.customer = 17", "tag=rare", "task=app.task_3", "text=nothing",
])  # fmt: skip
def test_a_search_looks_at_one_chunk_after_the_other(explaining: Explaining, query: str) -> None:
    explaining.run(triage.dead_page(from_query(f"queue=morgue&{query}"), size=50))
    assert len(explaining.plans) <= 3 + 2 * search.MAX_SCAN // search.CHUNK
    check(explaining.plan("dead_newest"), "dead_died", rows=search.CHUNK + 10)
    check(explaining.plan("dead_match"), "deadletter_pkey", "job_pkey", rows=2 * search.CHUNK + 10)


@pytest.mark.parametrize("kind", ["retry", "redrive", "discard"])
@pytest.mark.parametrize("query", ["queue=morgue", "queue=morgue&fingerprint=print-7"])
def test_a_batch_far_behind(explaining: Explaining, kind: str, query: str) -> None:
    to = "other" if kind == "redrive" else None
    number = explaining.run(start_operation(kind, from_query(query), frozen_at=NOW, to=to, reason="plans"))
    assert number in explaining.run(active_operations())
    explaining.connection.execute(
        "UPDATE leasequeue_bulkoperation SET cursor = jsonb_build_array(%s::bigint, 5) WHERE id = %s",
        [triage.micros(NOW - timedelta(seconds=12_000)), number],
    )
    assert explaining.run(run_batch(number)) is True
    oldest, index = ("dead_oldest_group", "dead_cause") if "fingerprint" in query else ("dead_oldest", "dead_died")
    check(explaining.plan(oldest), index, rows=520)
    # The letter as it is seen, its job, the letter again when it is locked.
    check(explaining.plan("dead_lock"), "deadletter_pkey", "job_pkey", rows=3 * 500 + 10)
    check(explaining.plan("dead_discard" if kind == "discard" else "redrive"), "job_pkey", rows=10 * 500 + 100)
    assert explaining.run(change_operation(number, "cancel")) is not None


def test_discarded_letters_do_not_slow_the_next_ones(explaining: Explaining) -> None:
    """What was discarded is dead in the index until vacuum: the cursor starts behind it."""
    number = explaining.run(start_operation("discard", from_query("queue=morgue"), frozen_at=NOW, reason="plans"))
    for _ in range(6):
        explaining.run(run_batch(number))
    blocks = [plan.blocks for plan in explaining.plans if plan.name == "dead_oldest"]
    assert len(blocks) == 6
    assert blocks[-1] <= blocks[0] + 30, blocks

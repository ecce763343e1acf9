"""No statement of triage reads more than its page, window or cap, however many dead letters there are."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine.dead import action, search, triage
from django_leasequeue.engine.dead.bulkoperation import active_operations, change_operation, run_batch, start_operation
from django_leasequeue.engine.dead.deadletter import spent_steps
from django_leasequeue.engine.dead.filter import from_query
from django_leasequeue.engine.pool import connect

from .explain import Explaining, Plan

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LETTERS = 100_000
#: Failed attempts of each letter.
ATTEMPTS = 3
FILL = """
WITH n AS (
    SELECT generate_series(%(start)s::bigint, %(start)s::bigint + %(count)s - 1) AS n
), jobs AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, rank, key, tag, name, data)
    SELECT n, %(queue)s, %(now)s, 0, 'dead-' || n, CASE WHEN n %% 50 = 0 THEN 'rare' END, 'app.task_' || n %% 7,
        json_build_object('kwargs', json_build_object('customer', n %% 1000))
    FROM n
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT n, %(queue)s, %(now)s, a, 'worker', 'app.Error', 'error number ' || n, '', 'print-' || n %% %(prints)s
    FROM n, generate_series(1, %(attempts)s) AS a
)
INSERT INTO leasequeue_deadletter (seq, queue_id, dead_at, deliveries, in_place, error_type, error, fingerprint)
SELECT n, %(queue)s, %(now)s::timestamptz - (n - %(start)s) * interval '1 s', 5, true, 'app.Error',
    'error number ' || n, 'print-' || n %% %(prints)s
FROM n
"""


#: What else is in the tables, so that none of them is small.
OTHERS = """
INSERT INTO leasequeue_job (seq, queue_id, created_at, rank, name)
SELECT 6000000 + n, %(other)s, %(now)s, 0, 'app.other' FROM generate_series(1, 50000) AS n;
INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at)
SELECT %(other)s, 0, 2, 6000000 + n, 6000000 + n, 0, 0, %(now)s FROM generate_series(1, 20000) AS n;
INSERT INTO leasequeue_delayed (seq, queue_id, available_at, rank, deliveries, flags)
SELECT 6000000 + n, %(other)s, %(now)s::timestamptz + interval '1 day', 0, 0, 0 FROM generate_series(20001, 40000) AS n;
INSERT INTO leasequeue_claim (token, part, queue_id, deadline, created_at, ttl_ms, grace_ms, flags, node, seqs)
SELECT 2 * n, 0, %(other)s, %(now)s::timestamptz + n * interval '1 s', %(now)s, 1000, 0, 0, 'holder', ARRAY[6000000 + n]
FROM generate_series(40001, 50000) AS n;
INSERT INTO leasequeue_record (queue_id, seq) SELECT %(log)s, 7000000 + n FROM generate_series(1, 20000) AS n;
INSERT INTO leasequeue_jobresult (seq, queue_id, finished_at, expires_at, deliveries, state)
SELECT 8000000 + n, %(other)s, %(now)s, %(now)s::timestamptz + interval '1 day', 1, 1
FROM generate_series(1, 20000) AS n;
SELECT setval('leasequeue_job_seq_seq', 10000000);
"""
TABLES = ("job", "attempt", "deadletter", "ready", "delayed", "claim", "record", "jobresult")


@dataclass
class Dead:
    """Ids of the queues and numbers of their first letters, by name."""

    ids: dict[str, int]
    start: dict[str, int]


@pytest.fixture(scope="module")
def dead(django_db_setup: None, django_db_blocker) -> Iterator[Dead]:
    """100,000 dead letters of one queue in 20 groups, 20,000 of another in 400; and live jobs, leases and records."""
    with django_db_blocker.unblock(), connect("default") as connection, engine.clock.hold(engine.clock.Clock(NOW)):
        executor = engine.ConnectionExecutor(connection)
        made = Dead({}, {})
        options = {"max_deliveries": 1, "exhaust_at": "release", "dead_letter": "self"}
        for name in ("morgue", "annex", "other", "log"):
            executor.run(engine.create(name, **(options if name in ("morgue", "annex") else {})))
            info = executor.run(engine.get(name))
            made.ids[name] = info.id
        following = 1_000
        for name, count, prints in (("morgue", LETTERS, 20), ("annex", 20_000, 400)):
            made.start[name] = following
            connection.execute(
                FILL,
                {
                    "queue": made.ids[name], "now": NOW, "start": following, "count": count, "prints": prints,
                    "attempts": ATTEMPTS,
                },
            )  # fmt: skip
            following += count
        psycopg.ClientCursor(connection).execute(OTHERS, {**made.ids, "now": NOW})
        connection.execute("VACUUM (ANALYZE) " + ", ".join(f"leasequeue_{table}" for table in TABLES))
        try:
            yield made
        finally:
            ids = list(made.ids.values())
            connection.execute("SET enable_seqscan = on")
            connection.execute("SET session_replication_role = replica")
            for table in (*TABLES, "topicstate", "queuefloor", "queuerank"):
                connection.execute(f"DELETE FROM leasequeue_{table} WHERE queue_id = ANY (%s)", [ids])
            connection.execute("DELETE FROM leasequeue_queue WHERE id = ANY (%s)", [ids])
            connection.execute("VACUUM (ANALYZE) " + ", ".join(f"leasequeue_{table}" for table in TABLES))


#: Statistics of a time when nothing had died yet.
STALE = """
DELETE FROM pg_statistic WHERE starelid IN ('leasequeue_job'::regclass, 'leasequeue_deadletter'::regclass,
    'leasequeue_attempt'::regclass);
UPDATE pg_class SET reltuples = 0, relpages = 1 WHERE relname IN ('leasequeue_dead_cause', 'leasequeue_dead_died',
    'leasequeue_deadletter_pkey', 'leasequeue_attempt_job');
UPDATE pg_class SET reltuples = 1000, relpages = 30
    WHERE relname IN ('leasequeue_job', 'leasequeue_deadletter', 'leasequeue_attempt');
"""


@pytest.fixture(params=["own", "host", "host, before the first analyze"])
def explaining(
    request: pytest.FixtureRequest, dead: Dead, django_db_blocker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Explaining]:
    monkeypatch.setattr(triage, "PATIENCE", 1e9)  # explaining takes its time
    with django_db_blocker.unblock(), engine.clock.hold(engine.clock.Clock(NOW)):
        with connect("default") as connection, connection.transaction(force_rollback=True):
            if request.param != "own":
                connection.execute("SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on", prepare=False)
            if request.param.endswith("analyze"):
                connection.execute("SET LOCAL plan_cache_mode = auto")
            if request.param.endswith("analyze"):
                if connection.execute("SHOW is_superuser").fetchone() != ("on",):
                    pytest.skip("only a superuser may change statistics")
                connection.execute(STALE, prepare=False)
            yield Explaining(connection)


def check(plan: Plan, *indexes: str, rows: int) -> None:
    assert plan.whole_tables == [], plan.text()
    assert plan.indexes >= {f"leasequeue_{index}" for index in indexes}, plan.text()
    assert plan.table_rows() <= rows, plan.text()
    assert plan.compared <= max(rows, 100), plan.text()


def test_groups_read_a_few_entries_each(explaining: Explaining, dead: Dead) -> None:
    found = explaining.run(triage.dead_groups(from_query(""), size=20))
    assert len(found.groups) == 20
    groups = explaining.plan("dead_groups").root["Actual Rows"]
    assert groups > 400
    check(explaining.plan("dead_queues"), "dead_died", rows=20)
    check(explaining.plan("dead_groups"), "dead_cause", rows=4 * groups + 100)
    assert found.exact
    # Each dead letter once, in the index; the number of groups is that of the probes.
    check(explaining.plan("dead_group_counts"), "dead_size", rows=LETTERS + 20_000 + 2 * groups + 100)
    limit = 20 * (triage.BUCKETS * (triage.BUCKET_CAP + 1) + 10)
    check(explaining.plan("dead_group_figures"), "dead_cause", rows=limit)


def test_groups_of_one_fingerprint_and_of_an_hour(explaining: Explaining, dead: Dead) -> None:
    explaining.run(triage.dead_groups(from_query("queue=annex&fingerprint=print-7")))
    check(explaining.plan("dead_groups"), "dead_cause", rows=10)
    check(explaining.plan("dead_group_figures"), "dead_cause", rows=120)
    explaining.plans.clear()
    explaining.run(triage.dead_groups(from_query("queue=morgue&since=1h")))
    check(explaining.plan("dead_group_counts_within"), "dead_cause", rows=20 * (181 + 30))
    check(explaining.plan("dead_group_figures"), "dead_cause", rows=20 * (181 * 2 + 30))


@pytest.mark.parametrize(
    ("query", "index", "statement"),
    [
        ("", "dead_died", "dead_newest"),
        ("queue=morgue", "dead_died", "dead_newest"),
        ("queue=morgue&since=5h&until=1h", "dead_died", "dead_newest"),
        ("fingerprint=print-7", "dead_cause", "dead_newest_group"),
        ("queue=morgue&fingerprint=print-7&until=1h", "dead_cause", "dead_newest_group"),
    ],
)
def test_a_page(explaining: Explaining, dead: Dead, query: str, index: str, statement: str) -> None:
    first = explaining.run(triage.dead_page(from_query(query), size=50))
    assert len(first.rows) == 50
    explaining.run(triage.dead_page(from_query(query), size=50, after=first.next))
    for number in (0, 1):
        # Each of the two queues gives a page.
        check(explaining.plan(statement, number), index, rows=2 * 51 + 20)
        check(explaining.plan("dead_rows", number), "deadletter_pkey", "job_pkey", rows=2 * 51)


def test_a_page_far_behind(explaining: Explaining, dead: Dead) -> None:
    after = triage.encode_cursor(triage.micros(NOW - timedelta(seconds=90_000)), 5)
    assert len(explaining.run(triage.dead_page(from_query("queue=morgue"), size=50, after=after)).rows) == 50
    check(explaining.plan("dead_newest"), "dead_died", rows=60)


@pytest.mark.parametrize(
    "query",
    [
        "text=error number 77",
        "payload=data.kwargs.customer = 17",
        "tag=rare",
        "task=app.task_3",
        "deliveries=5",
        "text=nothing",
    ],
)
def test_a_search_looks_at_one_chunk_after_the_other(explaining: Explaining, dead: Dead, query: str) -> None:
    explaining.run(triage.dead_page(from_query(f"queue=morgue&{query}"), size=50))
    assert len(explaining.plans) <= 3 + 2 * search.MAX_SCAN // search.CHUNK
    check(explaining.plan("dead_newest"), "dead_died", rows=search.CHUNK + 10)
    check(explaining.plan("dead_match"), "deadletter_pkey", "job_pkey", rows=2 * search.CHUNK + 10)


@pytest.mark.parametrize(
    ("query", "index"), [("queue=morgue", "dead_died"), ("queue=morgue&fingerprint=print-7", "dead_cause")]
)
def test_a_preview_counts_by_the_index(explaining: Explaining, dead: Dead, query: str, index: str) -> None:
    found = explaining.run(triage.preview(from_query(query)))
    assert found.matches == (10_000 if "fingerprint" not in query else 5_000)
    check(explaining.plan("dead_count"), index, rows=1_010)
    check(explaining.plan("dead_count", 1), index, rows=10_010)


@pytest.mark.parametrize("kind", ["retry", "redrive", "discard"])
@pytest.mark.parametrize("query", ["queue=morgue", "queue=morgue&fingerprint=print-7"])
def test_a_batch(explaining: Explaining, dead: Dead, kind: str, query: str) -> None:
    number = explaining.run(
        start_operation(
            kind, from_query(query), frozen_at=NOW, to="other" if kind == "redrive" else None, reason="plans"
        )
    )
    assert explaining.run(active_operations()) == [number]
    assert explaining.run(run_batch(number)) is True
    oldest = "dead_oldest_group" if "fingerprint" in query else "dead_oldest"
    check(explaining.plan(oldest), "dead_cause" if "fingerprint" in query else "dead_died", rows=520)
    # The letter as it is seen, its job, the letter again when it is locked.
    check(explaining.plan("dead_lock"), "deadletter_pkey", "job_pkey", rows=3 * 500 + 10)
    rows = (6 if kind == "redrive" else 5) + 1 + ATTEMPTS
    name = "dead_discard" if kind == "discard" else "redrive"
    check(explaining.plan(name), "deadletter_pkey", "job_pkey", rows=rows * 500 + 100)
    assert explaining.run(change_operation(number, "cancel")) is not None


def test_a_batch_far_behind(explaining: Explaining, dead: Dead) -> None:
    number = explaining.run(start_operation("discard", from_query("queue=morgue"), frozen_at=NOW, reason="plans"))
    explaining.connection.execute(
        "UPDATE leasequeue_bulkoperation SET cursor = jsonb_build_array(%s::bigint, 5) WHERE id = %s",
        [triage.micros(NOW - timedelta(seconds=50_000)), number],
    )
    explaining.run(run_batch(number))
    check(explaining.plan("dead_oldest"), "dead_died", rows=520)


def test_act_and_edit(explaining: Explaining, dead: Dead) -> None:
    first = dead.start["morgue"]
    explaining.run(action.act("retry", range(first, first + 1_000)))
    check(explaining.plan("dead_lock"), "deadletter_pkey", "job_pkey", rows=3_010)
    check(explaining.plan("redrive"), "deadletter_pkey", "job_pkey", "attempt_job", rows=7_100)
    explaining.run(action.edit_and_retry("morgue", first + 2_000, data=1, dead_at=NOW - timedelta(seconds=2_000)))
    check(explaining.plan("dead_edit"), "deadletter_pkey", "job_pkey", "attempt_job", rows=30)


def test_discarded_letters_do_not_slow_the_next_ones(explaining: Explaining, dead: Dead) -> None:
    """What was discarded is dead in the index until vacuum: the cursor starts behind it."""
    number = explaining.run(start_operation("discard", from_query("queue=annex"), frozen_at=NOW, reason="plans"))
    for _ in range(6):
        explaining.run(run_batch(number))
    blocks = [plan.blocks for plan in explaining.plans if plan.name == "dead_oldest"]
    assert len(blocks) == 6
    assert blocks[-1] <= blocks[0] + 30, blocks


def test_used_up_jobs_are_moved_by_their_number(explaining: Explaining, dead: Dead) -> None:
    """Whether they wait or are leased: what is read grows with those that go."""
    explaining.run(engine.configure("annex", max_deliveries=1, exhaust_at="claim", dead_letter="self"))
    first = dead.start["annex"]
    explaining.run(action.act("retry", range(first, first + 1_000)))
    explaining.connection.execute("UPDATE leasequeue_ready SET deliveries = 5 WHERE queue_id = %s", [dead.ids["annex"]])
    for target, name in (("self", "bury"), ("graveyard", "move")):
        explaining.plans.clear()
        explaining.run(engine.configure("annex", max_deliveries=1, exhaust_at="claim", dead_letter=target))
        with explaining.connection.transaction(force_rollback=True):
            explaining.run(engine.Operation(lambda: spent_steps([dead.ids["annex"]])))
            check(explaining.plan("spent"), "ready_pkey", rows=2_010)
            check(explaining.plan(name), "ready_pkey", "job_pkey", "attempt_job", rows=12_000)

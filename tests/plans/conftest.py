from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection as django_connection
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue import engine
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.pool import connect

from .explain import Explaining, prepare

ROWS = 100_000
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)

#: What sets each planner up: as our own connections are, and as a host's connection is.
SETTINGS = {
    "own": "",
    "host": "SET enable_seqscan = on; SET jit = on",
}

#: Statements whose plan a long-lived connection may have made while the tables were still empty.
EARLY = (
    "enqueue",
    "claim",
    "finish",
    "release",
    "extend",
    "sweep",
    "promote",
    "find_keys",
    "cancel",
    "settle_outcomes",
)

FILL = """
WITH q AS (SELECT id FROM leasequeue_queue WHERE name = %(queue)s)
INSERT INTO leasequeue_job (seq, queue_id, position, rank, state, created_at, deliveries, key, tag, name, data,
    available_at, expires_at, dead_at, fingerprint, node, claim, deadline)
SELECT n, q.id, n, CASE WHEN %(ranks)s > 1 THEN -(n %% %(ranks)s) ELSE 0 END, %(state)s, %(now)s, %(deliveries)s,
    CASE WHEN n %% 4 = 0 THEN %(queue)s || '-' || n END, CASE WHEN n %% 100 = 0 THEN 'rare' ELSE 'tag-' || n %% 7 END,
    'app.task', jsonb_build_object('n', n),
    CASE WHEN %(state)s = 1 THEN %(now)s::timestamptz
        + CASE WHEN %(due)s THEN n * interval '-1 us' ELSE n * interval '1 s' END END,
    CASE WHEN %(expiring)s THEN %(now)s::timestamptz + interval '1 day' END,
    CASE WHEN %(state)s = 3 THEN %(now)s::timestamptz END, CASE WHEN %(state)s = 3 THEN 'print-' || n %% 50 END,
    CASE WHEN %(state)s = 2 THEN 'holder' END,
    CASE WHEN %(state)s = 2 THEN %(claim)s::bigint + (n - %(start)s) / 200 END,
    CASE WHEN %(state)s = 2 THEN %(now)s::timestamptz + %(lease)s::interval END
FROM q, generate_series(%(start)s::bigint, %(start)s::bigint + %(count)s - 1) AS n
"""

CLAIMS = """
INSERT INTO leasequeue_claim (id, queue_id, deadline, created_at, ttl_ms, grace_ms, node, seqs)
SELECT claim, queue_id, deadline, %(now)s, 30000, 0, 'holder', array_agg(seq ORDER BY seq) FROM leasequeue_job
WHERE state = 2 GROUP BY claim, queue_id, deadline
"""

FINISH = """
INSERT INTO leasequeue_jobresult (seq, queue_id, created_at, finished_at, expires_at, deliveries, rank, state, key)
SELECT 900000000 + n, q.id, %(now)s, %(now)s, %(now)s::timestamptz + n * interval '1 s', 1, 0, 1, 'done-' || n
FROM leasequeue_queue q, generate_series(1, %(count)s) AS n WHERE q.name = 'busy'
"""


#: Events of the last hour; as many again are older. The seqs of jobs rise with time, three events each.
EVENTS = 100_000
FIRST_SEQ = 50_000_000
#: Events of one transaction.
PER_TRANSACTION = 20

FILL_EVENTS = """
INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, enqueued_at)
SELECT 1000 + n / %(per)s, CASE WHEN n < %(count)s THEN %(now)s::timestamptz - interval '7 days' + n * interval '1 s'
        ELSE %(now)s::timestamptz - interval '1 hour' + (n - %(count)s) * (interval '1 hour' / %(count)s) END,
    (ARRAY[%(busy)s, %(busy)s, %(other)s]::bigint[])[1 + n / 3 %% 3], %(seq)s + n / 3, (ARRAY[1, 2, 5])[1 + n %% 3],
    'holder', 1, %(now)s::timestamptz - interval '1 hour'
FROM generate_series(0, 2 * %(count)s - 1) AS n
"""


class Tables:
    """The large tables: where things are in them, and connections to look at them with."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self.ids: dict[str, int] = {}
        self.start: dict[str, int] = {}
        self.next = 1_000

    def queue(self, name: str, **options: object) -> None:
        executor = engine.ConnectionExecutor(self.connection)
        executor.run(engine.create(name, **options))
        info = executor.run(engine.get(name))
        assert info is not None
        self.ids[name] = info.id

    def fill(
        self, queue: str, count: int, state: int = 0, *, ranks: int = 1, deliveries: int = 0, lease: str = "1 hour",
        expiring: bool = False, due: bool = False,
    ) -> None:  # fmt: skip
        self.start[f"{queue}-{state}-{lease}"] = self.next
        self.connection.execute(
            FILL,
            {
                "queue": queue, "count": count, "state": state, "ranks": ranks, "deliveries": deliveries, "now": NOW,
                "start": self.next, "claim": self.next, "lease": lease, "expiring": expiring, "due": due,
            },
        )  # fmt: skip
        self.connection.execute(
            "INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value)"
            " SELECT DISTINCT queue_id, 0, rank, 0 FROM leasequeue_job WHERE state < 3 ON CONFLICT DO NOTHING"
        )
        self.next += count


@pytest.fixture(scope="package")
def early(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[psycopg.Connection]:
    """A connection of a host that planned its statements while there was nothing in the tables."""
    with django_db_blocker.unblock(), connect("default") as connection:
        connection.execute(SETTINGS["host"])
        # Also the pages that other tests have left: nothing is there, and the planner knows it.
        connection.execute("VACUUM (ANALYZE) leasequeue_job, leasequeue_claim, leasequeue_jobresult, leasequeue_queue")
        for name in EARLY:
            prepare(connection, name)
        executor = Explaining(connection)
        with connection.transaction(force_rollback=True):
            executor.run(engine.create("early"))
            answers = executor.run(engine.enqueue("early", [engine.NewJob(key=f"k{n}") for n in range(3)]))
            executor.run(engine.enqueue("early", [engine.NewJob(key="k1")] * 2))
            executor.run(engine.claim("early", "n", 3))
            executor.run(engine.extend([answers[0].seq], "n", 1_000))
            executor.run(engine.nack([answers[0].seq, 5], "n"))
            executor.run(engine.ack([answers[1].seq, 5], "n"))
            executor.run(engine.cancel("early", keys=["k0"]))
            executor.run(engine.sweep([1]))
            executor.run(engine.promote([1]))
        yield connection


@pytest.fixture(scope="package")
def tables(early: psycopg.Connection, django_db_blocker: DjangoDbBlocker) -> Iterator[Tables]:
    """100,000 ready jobs, 100,000 delayed, 20,000 leased and what else there is; a fifth of the entries are dead."""
    with django_db_blocker.unblock(), connect("default") as connection, engine_clock.hold(engine_clock.Clock(NOW)):
        for table in ("job", "claim", "jobresult"):
            connection.execute(f"ALTER TABLE leasequeue_{table} SET (autovacuum_enabled = off)")
        made = Tables(connection)
        made.queue("busy", max_deliveries=3, dead_letter="self", result_ttl_ms=60_000)
        made.queue("other")
        made.queue("later")
        made.queue("graves", max_deliveries=1, exhaust_at="release", dead_letter="letters")
        made.queue("letters", type="log")
        made.queue("expiring")
        made.fill("busy", 30_000, ranks=3)  # these die below
        made.fill("busy", ROWS, ranks=3)
        made.fill("other", 20_000)
        made.fill("later", ROWS, 1)
        made.fill("busy", 20_000, 2)
        made.fill("busy", 400, 2, lease="-1 second")
        made.fill("graves", 2_000, 2, deliveries=1)
        made.fill("busy", 5_000, 3)
        made.fill("letters", 20_000, 4)
        made.fill("expiring", 20_000, expiring=True)
        connection.execute(CLAIMS, {"now": NOW})
        connection.execute(FINISH, {"now": NOW, "count": 50_000})
        connection.execute("DELETE FROM leasequeue_job WHERE seq < 31000")
        connection.execute("UPDATE leasequeue_job SET name = 'app.other' WHERE seq %% 5 = 0".replace("%%", "%"))
        connection.execute("SELECT setval('leasequeue_job_seq_seq', 10000000)")
        connection.execute("SELECT setval('leasequeue_claim_id_seq', 10000000)")
        try:
            yield made
        finally:
            for table in ("job", "claim", "jobresult"):
                connection.execute(f"ALTER TABLE leasequeue_{table} RESET (autovacuum_enabled)")
            call_command("flush", verbosity=0, interactive=False)
            django_connection.close()


@pytest.fixture(params=["own", "host", "host, planned when empty"])
def explaining(
    request: pytest.FixtureRequest, tables: Tables, early: psycopg.Connection, django_db_blocker: DjangoDbBlocker
) -> Iterator[Explaining]:
    """An executor that explains; its transaction is rolled back."""
    with django_db_blocker.unblock(), engine_clock.hold(engine_clock.Clock(NOW)):
        if request.param not in SETTINGS:
            with early.transaction(force_rollback=True):
                yield Explaining(early, early=True)
            return
        with connect("default") as connection, connection.transaction(force_rollback=True):
            connection.execute(SETTINGS[request.param])
            if request.param == "host":
                connection.execute("ANALYZE leasequeue_job, leasequeue_claim, leasequeue_jobresult, leasequeue_queue")
            yield Explaining(connection)


@pytest.fixture
def events(explaining: Explaining, tables: Tables) -> Explaining:
    """The connection's transaction, with a large log in it; BRIN ranges are summed up as vacuum would."""
    connection = explaining.connection
    connection.execute(
        FILL_EVENTS,
        {
            "count": EVENTS,
            "per": PER_TRANSACTION,
            "now": NOW,
            "busy": tables.ids["busy"],
            "other": tables.ids["other"],
            "seq": FIRST_SEQ,
        },
    )
    connection.execute(
        "SELECT brin_summarize_new_values(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " JOIN pg_am a ON a.oid = c.relam JOIN pg_class t ON t.oid = i.indrelid"
        " WHERE a.amname = 'brin' AND c.relkind = 'i' AND t.relname LIKE 'leasequeue_leaseevent%'"
    )
    return explaining

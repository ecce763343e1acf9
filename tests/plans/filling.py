# ruff: noqa: E501 (SQL)
"""200,000 jobs and 200,000 results, in every place that there is. All numbers are fixed, so that cases can name them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connection as django_connection
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue.engine.pool import connect

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)

#: Queues by name.
NAMES = "busy other later due over letters stale capped graves morgue annex parked empty"
IDS = {name: 900_001 + number for number, name in enumerate(NAMES.split())}
#: Queues in which there is nothing.
IDLE = 300
RESULTS = 200_000

#: First number of the jobs of a place, and how many there are.
FRESH, AGAIN, OTHER, LATER, DUE, STALE = 1_000_000, 1_100_000, 1_200_000, 1_300_000, 1_400_000, 1_500_000
LEASED, BATCHED, OVER, GRAVES = 2_000_000, 2_100_000, 2_200_000, 2_300_000
DEAD, ANNEX, RECORDS, LETTERS, CAPPED, DONE = 3_000_000, 3_100_000, 3_200_000, 3_300_000, 3_400_000, 4_000_000
#: Dead letters that are ready in another queue.
PARKED = 3_500_000
#: Jobs that limits and workflows hold.
HELD = 3_700_000
COUNTS = {
    FRESH: ("busy", 50_000), AGAIN: ("busy", 10_000), OTHER: ("other", 20_000), LATER: ("later", 20_000),
    DUE: ("due", 10_000), STALE: ("stale", 2_000), LEASED: ("busy", 20_000), BATCHED: ("busy", 10_000),
    OVER: ("over", 2_000), GRAVES: ("graves", 1_000), DEAD: ("morgue", 20_000), ANNEX: ("annex", 5_000),
    RECORDS: ("letters", 20_000), LETTERS: ("letters", 5_000), CAPPED: ("capped", 5_000), DONE: ("busy", RESULTS),
    PARKED: ("parked", 10_000), HELD: ("busy", 12_000),
}  # fmt: skip
assert sum(count for _, count in COUNTS.values()) >= 400_000
#: Jobs of a claim, where they are leased in batches.
BATCH = 200

QUEUES = """
INSERT INTO leasequeue_queue (id, project, name, type, requeue, priority_order, priority_min, priority_max, lease_ms,
    late_ack, leases_durable, claim_jitter_ms, concurrency, max_deliveries, exhaust_at, dead_letter, dead_ttl_ms, backoff,
    backoff_base_ms, backoff_max_ms, result_ttl_ms, dedup_until, ttl_ms, cap_records, cap_bytes, discard, durability,
    idempotency_window_ms, log_enqueued, serializer, metadata, dead_lettered, created_at, updated_at)
SELECT u.id, '', u.name, CASE WHEN u.name IN ('letters', 'capped') THEN 'log' ELSE 'queue' END, 'original', 'desc', 0, 9,
    30000, 'reject', false, 0, CASE u.name WHEN 'empty' THEN 5 ELSE 0 END, 3, CASE WHEN u.name IN ('graves', 'morgue', 'annex') THEN 'release' ELSE 'claim' END,
    CASE u.name WHEN 'graves' THEN 'letters' WHEN 'empty' THEN NULL ELSE 'self' END,
    CASE u.name WHEN 'morgue' THEN 86400000 ELSE 0 END, 'none', 1000, 3600000,
    CASE u.name WHEN 'busy' THEN 60000 ELSE 0 END, 'terminal', 0, CASE u.name WHEN 'capped' THEN 4000 ELSE 0 END, 0, 'old',
    'disk', 120000, true, 'json', '{}', 0, %(now)s, %(now)s
FROM (SELECT * FROM unnest(%(ids)s::bigint[], %(names)s::text[]) AS u(id, name)
    UNION ALL SELECT 910000 + n, 'idle-' || n FROM generate_series(1, %(idle)s) AS n) u
"""

JOBS = """
INSERT INTO leasequeue_job (seq, queue_id, created_at, expires_at, rank, key, name, tag, data, meta, first_claimed_at)
SELECT n, %(queue)s, %(now)s::timestamptz - interval '1 hour', CASE WHEN %(stale)s THEN %(now)s::timestamptz - interval '1 s' END,
    CASE WHEN %(ranks)s > 1 THEN -(n %% %(ranks)s) ELSE 0 END, CASE WHEN n %% 4 = 0 THEN %(name)s || '-' || n END,
    'app.task_' || n %% 7, CASE WHEN n %% 100 = 0 THEN 'rare' ELSE 'tag-' || n %% 7 END,
    json_build_object('n', n, 'kwargs', json_build_object('customer', n %% 1000)),
    CASE WHEN n %% 50 = 7 THEN json_build_object('$tags', json_build_object('customer', n, 'kind', 'mail')) END, NULL
FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) AS n
"""

READY = """
INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, expires_at, tag)
SELECT queue_id, rank, %(lane)s, seq, seq, %(lane)s %% 2, CASE WHEN %(lane)s = 1 THEN 8 ELSE 0 END, %(now)s, NULL, expires_at, tag
FROM leasequeue_job WHERE seq >= %(first)s AND seq < %(first)s + %(count)s ORDER BY seq
"""

DELAYED = """
INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, expires_at, tag)
SELECT seq, queue_id, %(now)s::timestamptz + %(step)s::interval * (seq - %(first)s + 1), 0, rank, 1024 * (seq %% 10 = 0)::int, expires_at, tag
FROM leasequeue_job WHERE seq >= %(first)s AND seq < %(first)s + %(count)s ORDER BY seq
"""

#: The token of a claim is the number of its first job. The worker 0 has every twentieth claim: a look for one of them may not
#: go through all of its claims.
CLAIMS = """
INSERT INTO leasequeue_claim (token, part, queue_id, deadline, created_at, ttl_ms, grace_ms, flags, node, name, seqs, deliveries)
SELECT min(seq), 0, queue_id, %(now)s::timestamptz + %(lease)s::interval + (seq - %(first)s) / %(size)s * interval '1 ms',
    %(now)s::timestamptz - interval '1 minute', 30000, 0, %(flags)s,
    %(node)s || CASE WHEN (seq - %(first)s) / %(size)s %% 20 = 0 THEN 0 ELSE (seq - %(first)s) / %(size)s %% 2000 END,
    'app.task', array_agg(seq ORDER BY seq), CASE WHEN %(deliveries)s > 1 THEN array_agg(%(deliveries)s::int) END
FROM leasequeue_job WHERE seq >= %(first)s AND seq < %(first)s + %(count)s GROUP BY queue_id, (seq - %(first)s) / %(size)s
"""

DEAD_LETTERS = """
INSERT INTO leasequeue_deadletter (seq, queue_id, dead_at, expires_at, deliveries, in_place, error_type, error, fingerprint)
SELECT seq, queue_id, %(now)s::timestamptz - interval '1 s' * (seq - %(first)s),
    CASE WHEN seq %% 10 = 0 THEN %(now)s::timestamptz + interval '1 day' END, 3, %(in_place)s, 'app.Error',
    'error number ' || seq, 'print-' || seq %% %(prints)s
FROM leasequeue_job WHERE seq >= %(first)s AND seq < %(first)s + %(count)s
"""

ATTEMPTS = """
INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
SELECT seq, queue_id, %(now)s, n, 'n', 'app.Error', 'error number ' || seq, 'Traceback', 'print'
FROM leasequeue_job, generate_series(1, %(each)s) AS n WHERE seq >= %(first)s AND seq < %(first)s + %(count)s
"""

HOLD = """
INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags)
SELECT seq, queue_id, '9000-01-01 00:00+00', 0, rank, 128
FROM leasequeue_job WHERE seq >= %(first)s AND seq < %(first)s + %(count)s ORDER BY seq
"""

#: 10,000 jobs that wait for 1,000 keys, 2,000 that have slots, 2,000 workflows of five jobs that are done and one that waits.
FLOW = (
    """INSERT INTO leasequeue_limit (id, project, name, concurrency, rate, per_ms, burst, fair, pinned, updated_at)
    SELECT n, '', 'limit-' || n, 5, 1000, 1000, 0, n % 2 = 0, n % 10 = 0, %(now)s FROM generate_series(1, 100) AS n""",
    """INSERT INTO leasequeue_limitkey (id, limit_id, key) SELECT n, 1 + n % 100, 'key-' || n FROM generate_series(1, 20000) AS n""",
    """INSERT INTO leasequeue_member (seq, queue_id, rank, key, taken, waits, state, pending, tolerant, place, label)
    SELECT 3700000 + n, 900001, 0, 1 + n % 1000, false, true, 0, 0, false, 0, '' FROM generate_series(0, 9999) AS n
    UNION ALL SELECT 2000000 + n, 900001, 0, 1 + n % 1000, true, false, 0, 0, false, 0, '' FROM generate_series(0, 1999) AS n""",
    """INSERT INTO leasequeue_workflow (id, uid, project, name, state, total, completed, failed, cancelled, created_at, ended_at,
        expires_at)
    SELECT n, ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, '', '', 0, 6, 0, 0, 0, %(now)s,
        CASE WHEN n % 2 = 0 THEN %(now)s::timestamptz END,
        CASE WHEN n % 2 = 0 THEN %(now)s::timestamptz + (n - 100) * interval '1 s' END FROM generate_series(1, 2000) AS n""",
    """INSERT INTO leasequeue_member (seq, queue_id, rank, taken, waits, workflow, state, pending, tolerant, place, label, children)
    SELECT 4000000 + n, 900001, 0, false, false, 1 + n / 5, 0, 0, false, n % 5, 'a', ARRAY[3710000 + n / 5]
    FROM generate_series(0, 9999) AS n""",
    """INSERT INTO leasequeue_member (seq, queue_id, rank, taken, waits, workflow, state, pending, tolerant, place, label, parents)
    SELECT 3710000 + n, 900001, 0, false, false, 1 + n, 0, 5, false, 5, 'z',
        ARRAY(SELECT generate_series(4000000 + n * 5, 4000004 + n * 5)) FROM generate_series(0, 1999) AS n""",
    """INSERT INTO leasequeue_flowturn (queue_id, at, kind, key)
    SELECT 900003 + n % 10, %(now)s::timestamptz + (n - 1000) * interval '1 s', 3, 1 + n % 1000 FROM generate_series(0, 9999) AS n""",
    "SELECT setval(pg_get_serial_sequence('leasequeue_' || t, 'id'), 100000) FROM unnest('{limit,limitkey,workflow}'::text[]) AS t",
)

RECORD = """
INSERT INTO leasequeue_record (queue_id, seq, expires_at, tag)
SELECT queue_id, seq, CASE WHEN seq %% 10 = 0 THEN %(now)s::timestamptz + interval '1 day' END, tag
FROM leasequeue_job WHERE seq >= %(first)s AND seq < %(first)s + %(count)s ORDER BY seq
"""

RESULT = """
INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries, state, node, result)
SELECT seq, queue_id, seq, %(now)s, %(now)s, %(now)s::timestamptz + interval '1 s' * (seq - %(first)s - 1000), 1, 1, 'n', '7'
FROM leasequeue_job WHERE seq >= %(first)s AND seq < %(first)s + %(count)s
"""

#: 20,000 rows of ten jobs each: half of them of the last hour; twenty rows a transaction.
EVENTS = """
INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, node, name, seqs, deliveries, waited, ran)
SELECT 1000 + n / 20, CASE WHEN n < 10000 THEN %(now)s::timestamptz - interval '7 days' + n * interval '1 minute'
        ELSE %(now)s::timestamptz - interval '1 hour' + (n - 10000) * interval '0.36 s' END,
    CASE WHEN n %% 3 = 0 THEN %(other)s ELSE %(busy)s END, s.low, s.low + 9, (ARRAY[1, 2, 5])[1 + n %% 3], 'n', 'app.task_' || n %% 7,
    ARRAY(SELECT generate_series(s.low, s.low + 9)), NULL,
    CASE WHEN n %% 3 = 1 THEN array_fill(5, ARRAY[10]) END, CASE WHEN n %% 3 = 2 THEN array_fill(7, ARRAY[10]) END
FROM generate_series(0, 19999) AS n, LATERAL (SELECT 1000000::bigint + n * 3 AS low) s
"""

#: Sum up the ranges of the log's BRIN indexes, as vacuum would.
SUM_UP = """
SELECT brin_summarize_new_values(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am a ON a.oid = c.relam JOIN pg_class t ON t.oid = i.indrelid
WHERE a.amname = 'brin' AND c.relkind = 'i' AND t.relname LIKE 'leasequeue_leaseevent%'
"""

REST = (
    """INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
    SELECT q.id, 0, -(n % 3), 1000000 - 20 + n, %(now)s FROM leasequeue_queue q, generate_series(0, 5) AS n
    UNION ALL SELECT q.id, k, 0, extract(epoch FROM %(now)s::timestamptz - interval '2 days')::bigint * 1000000 + n, %(now)s
    FROM leasequeue_queue q, generate_series(1, 2) AS k, generate_series(0, 3) AS n
    UNION ALL SELECT q.id, 3, 0, 1000 + n, %(now)s FROM leasequeue_queue q, generate_series(0, 3) AS n""",
    """INSERT INTO leasequeue_queuerank (queue_id, rank)
    SELECT q.id, r FROM leasequeue_queue q, generate_series(-2, 0) AS r WHERE q.type = 'queue' AND (r = 0 OR q.name = 'busy')""",
    """INSERT INTO leasequeue_topicstate (queue_id, records, bytes) SELECT id, CASE WHEN cap_records > 0 THEN 5000 END,
        CASE WHEN cap_records > 0 THEN 200000 END FROM leasequeue_queue""",
    """INSERT INTO leasequeue_queuestat (queue_id, sampled_at, ready, delayed, leased, dead, records)
    SELECT 900001 + n % 12, %(now)s::timestamptz - n / 12 * interval '1 minute', n, 0, 0, 0, 0 FROM generate_series(0, 19999) AS n""",
    """INSERT INTO leasequeue_worker (node, host, pid, project, queues, concurrency, state, started_at, seen_at, completed, failed,
        retried, lost, running, info) SELECT 'worker-' || n, 'h', n, '', '{busy}', 8, 'running', %(now)s,
        %(now)s::timestamptz - n * interval '1 s', 0, 0, 0, 0, '[]', '{}' FROM generate_series(1, 2000) AS n""",
    """INSERT INTO leasequeue_idempotencykey (queue_id, key, seqs, created_at, expires_at)
    SELECT 900001, 'idem-' || n, ARRAY[n], %(now)s, %(now)s::timestamptz + interval '1 m' FROM generate_series(1, 10000) AS n""",
    # Every tenth of no job that is there.
    f"""INSERT INTO leasequeue_jobstep (seq, number, name, value, done_at, delivery)
    SELECT {LEASED} + g / 100, g % 100, 'step ' || g % 100, '1', now(), 1 FROM generate_series(1, 50000) g""",
    f"""INSERT INTO leasequeue_jobstep (seq, number, name, value, done_at, delivery)
    SELECT {LATER} + g, 0, '$undo', '{{"own": null, "max": 3}}'::json, now(), 1 FROM generate_series(1, 100) g
    UNION ALL SELECT {LEASED} + g, 0, '$undo', '{{"own": 5, "max": 5}}'::json, now(), 1 FROM generate_series(1, 100) g""",
    f"""INSERT INTO leasequeue_jobstep (seq, number, name, done_at, delivery, until, project, event)
    SELECT {LEASED} + g, 101, 'wait', now(), 1, now() + interval '1 day', '',
        CASE WHEN g % 100 = 0 THEN '$result:' || g WHEN g % 1000 = 1 THEN '$workflow:' || gen_random_uuid()
            ELSE 'event ' || g % 10000 END FROM generate_series(1, 50000) g""",
    f"""INSERT INTO leasequeue_jobstep (seq, number, name, done_at, delivery, until)
    SELECT {LATER} + g, 1, 'nap', now(), 1, now() + interval '1 day' FROM generate_series(1, 20000) g""",
    """INSERT INTO leasequeue_emittedevent (project, name, payload, emitted_at, expires_at)
    SELECT '', 'old ' || n, '1', %(now)s, %(now)s::timestamptz + n * interval '1 s' - interval '1 h'
    FROM generate_series(1, 20000) AS n""",
    """INSERT INTO leasequeue_uniquekey (queue_id, key, seq, until_start)
    SELECT queue_id, key, CASE WHEN seq % 10 = 0 THEN 90000000 + seq ELSE seq END, false FROM leasequeue_job
    WHERE key IS NOT NULL AND NOT generated""",
    """INSERT INTO leasequeue_apikey (name, prefix, digest, scopes, topics, project, created_at)
    SELECT 'k' || n, 'prefix' || n, 'digest', '{}', '{}', '', %(now)s FROM generate_series(1, 2000) AS n""",
    """INSERT INTO leasequeue_bulkoperation (kind, state, project, queue, filters, frozen_at, jitter_ms, reason, user_id, username,
        expected_capped, looked_at, done, conflicts, conflict_counts, conflict_sample, created_at, error)
    SELECT 'discard', CASE WHEN n <= 1 THEN 'running' ELSE 'done' END, '', 'morgue', '', %(now)s, 0, 'r', 'u', 'u', false, 0, 0, 0, '{}',
        '[]', %(now)s::timestamptz - n * interval '1 m', '' FROM generate_series(1, 2000) AS n""",
    """INSERT INTO leasequeue_operatoraction (at, user_id, username, source, action, project, queue, seqs, filters, counts, reason,
        detail) SELECT %(now)s, 'u', 'u', 's', 'discard', '', 'morgue', '{}', '', '{}', 'r', '{}' FROM generate_series(1, 5000) AS n""",
    """INSERT INTO leasequeue_recurringtask (service, name, schedule, timezone, task, args, kwargs, backend, queue_name, enabled, paused,
        from_settings, last_error, next_tick_at, created_at)
    SELECT 's', 't' || n, '* * * * *', 'UTC', 'x', '[]', '{}', 'default', 'busy', true, false, true, '',
        %(now)s::timestamptz + n * interval '1 m', %(now)s FROM generate_series(1, 1000) AS n""",
    """INSERT INTO leasequeue_reaperterm (term, single, beat, holder, address, began_at, beat_at, duties)
    VALUES (7, true, 7, 'a', 'local', %(now)s, %(now)s, '[]')""",
    """INSERT INTO leasequeue_claimwaiter (queue_id, node, size, joined_at, closes_at)
    SELECT 900001, 'w' || n, 10, %(now)s, %(now)s::timestamptz + interval '1 s' FROM generate_series(1, 50) AS n""",
    """INSERT INTO leasequeue_lakestage (part, staged_at, queue, key, data, source_seq)
    SELECT ('00000000-0000-0000-0000-' || lpad((n / 100)::text, 12, '0'))::uuid, %(now)s, 'busy', 'stage-' || n, '{}',
        CASE n % 3 WHEN 0 THEN 3000000 WHEN 1 THEN 3300000 ELSE 3500000 END + n % 5000
    FROM generate_series(0, 19999) AS n""",
    """INSERT INTO leasequeue_lakewrite (write_id, batch, committed_at, staged, enqueued)
    SELECT 'w' || n % 20, n / 20, %(now)s, 1, 1 FROM generate_series(0, 5000) AS n""",
    """INSERT INTO leasequeue_lakeconsumer (name, txid, event, horizon, registered_at, seen_at, moved_at)
    SELECT 'c' || n, 1, 1, 1, %(now)s, %(now)s, %(now)s FROM generate_series(1, 20) AS n""",
    # Every tenth of no job, and every tenth of one that is gone.
    """INSERT INTO leasequeue_largeobject (id, seq, created_at, size, storage, name)
    SELECT n, CASE n % 10 WHEN 0 THEN NULL WHEN 1 THEN 90000000 + n ELSE 1000000 + n END, %(now)s::timestamptz - interval '1 day',
        1000000, 'default', 'leasequeue/2030/01/01/' || n FROM generate_series(1, 50000) AS n""",
    "SELECT setval('leasequeue_job_seq_seq', 100000000)",
    "SELECT setval('leasequeue_claim_token_seq', 100000000)",
)


@contextmanager
def empty_database(blocker: DjangoDbBlocker) -> Iterator[psycopg.Connection[Any]]:
    """A connection of our own beside empty tables: whatever was there before, and what this leaves there, goes."""
    with blocker.unblock(), connect("default") as connection:
        call_command("flush", verbosity=0, interactive=False)
        yield connection
        call_command("flush", verbosity=0, interactive=False)
        connection.execute("VACUUM (ANALYZE)")
        django_connection.close()


def fill_queues(connection: psycopg.Connection[Any]) -> None:
    """Make the queues, which are there before anything is in them."""
    given = {"now": NOW, "ids": list(IDS.values()), "names": list(IDS), "idle": IDLE}
    psycopg.ClientCursor(connection).execute(QUEUES, given)


def fill_up(connection: psycopg.Connection[Any]) -> None:
    """Put 600,000 ready jobs and 600,000 finished ones beside what ``fill`` made: with fewer the planner sorts them."""
    ready, done = ({"first": first, "count": 600_000} for first in (10_000_000, 20_000_000))
    given = {"now": NOW, "name": "many", "queue": IDS["busy"], "ranks": 3, "stale": False, "lane": 2}
    for text, jobs in ((JOBS, ready), (READY, ready), (JOBS, done), (RESULT, done)):
        psycopg.ClientCursor(connection).execute(text, {**given, **jobs})


def fill(connection: psycopg.Connection[Any]) -> None:
    """Fill the tables, which are empty but for the queues; nothing is analyzed."""

    def run(text: str, first: int = 0, **params: Any) -> None:
        name, count = COUNTS.get(first, ("busy", 0))
        given = {"now": NOW, "first": first, "count": count, "name": name, "queue": IDS[name], **params}
        psycopg.ClientCursor(connection).execute(text, given)

    with connection.transaction():
        for first in COUNTS:
            run(JOBS, first, ranks=3 if first in (FRESH, AGAIN) else 1, stale=first == STALE)
        for first in (FRESH, OTHER, STALE, PARKED):
            run(READY, first, lane=2)
        run(READY, AGAIN, lane=1)
        run(DELAYED, LATER, step="1 second")
        run(DELAYED, DUE, step="-1 ms")
        run(CLAIMS, LEASED, size=1, lease="1 hour", node="n", flags=0, deliveries=1)
        run(CLAIMS, BATCHED, size=BATCH, lease="2 hours", node="holder-", flags=0, deliveries=1)
        run(CLAIMS, OVER, size=20, lease="-1 hour", node="gone-", flags=4, deliveries=2)
        run(CLAIMS, GRAVES, size=20, lease="1 hour", node="grave-", flags=12, deliveries=3)
        for first in (DEAD, ANNEX, LETTERS, PARKED):
            run(DEAD_LETTERS, first, in_place=first in (DEAD, ANNEX), prints=200 if first == ANNEX else 20)
        for first, each in ((DEAD, 3), (AGAIN, 1), (GRAVES, 2)):
            run(ATTEMPTS, first, each=each)
        for first in (RECORDS, LETTERS, CAPPED):
            run(RECORD, first)
        run(RESULT, DONE)
        run(HOLD, HELD)
        run(EVENTS, busy=IDS["busy"], other=IDS["other"])
        for text in (*FLOW, *REST):
            run(text.replace(" % ", " %% "))
    connection.execute(SUM_UP)

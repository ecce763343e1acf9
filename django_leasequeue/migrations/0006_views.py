"""The views: live jobs and the log job by job, which the engine reads, and the jobs that projects query."""

from django.db import migrations, models

from . import table

# A job with its place. Leased jobs are looked for last: they are found by reading the live claims of their queue.
CREATE_LIVE_JOB = """
CREATE VIEW leasequeue_livejob AS
SELECT j.seq, j.queue_id, p.state, p.lane, COALESCE(p.position, j.position, j.seq) AS position, p.ready_at, p.available_at,
    p.expires_at, p.deliveries, p.claim, p.node, p.deadline, p.claimed_at,
    COALESCE(j.first_claimed_at, p.claimed_at) AS first_claimed_at, COALESCE(p.dead_at, d.dead_at) AS dead_at,
    COALESCE(d.error_type, a.error_type) AS error_type, COALESCE(d.error, a.message) AS error,
    COALESCE(d.fingerprint, a.fingerprint) AS fingerprint,
    j.created_at, j.result_ttl_ms, j.source_queue, j.source_seq, j.max_deliveries, j.rank, j.key, j.name, j.tag, j.origin,
    j.reply_to, j.data, j.meta, j.body, j.progress
FROM leasequeue_job j
CROSS JOIN LATERAL (
    SELECT 0::smallint AS state, r.lane, r.position, r.ready_at, NULL::timestamptz AS available_at, r.expires_at,
        r.deliveries, NULL::bigint AS claim, NULL::text AS node, NULL::timestamptz AS deadline,
        NULL::timestamptz AS claimed_at, NULL::timestamptz AS dead_at
    FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
    UNION ALL
    SELECT 1, NULL, NULL, NULL, w.available_at, w.expires_at, w.deliveries, NULL, NULL, NULL, NULL, NULL
    FROM leasequeue_delayed w WHERE w.seq = j.seq
    UNION ALL
    SELECT 3, NULL, NULL, NULL, NULL, x.expires_at, x.deliveries, NULL, NULL, NULL, NULL, x.dead_at
    FROM leasequeue_deadletter x WHERE x.seq = j.seq AND x.in_place
    UNION ALL
    SELECT 4, NULL, NULL, NULL, NULL, o.expires_at, 0, NULL, NULL, NULL, NULL, NULL
    FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
    UNION ALL
    SELECT 2, NULL, NULL, NULL, NULL,
        CASE WHEN j.expires_at IS NOT NULL THEN GREATEST(j.expires_at, c.deadline + c.grace_ms * interval '1 ms') END,
        COALESCE(c.deliveries[array_position(c.seqs, j.seq)], 1), c.token, c.node, c.deadline, c.created_at, NULL
    FROM leasequeue_claim c WHERE c.queue_id = j.queue_id AND j.seq = ANY (c.seqs)
    LIMIT 1
) p
LEFT JOIN leasequeue_deadletter d ON d.seq = j.seq
LEFT JOIN LATERAL (
    SELECT t.error_type, t.message, t.fingerprint FROM leasequeue_attempt t WHERE t.seq = j.seq ORDER BY t.id + 0 DESC LIMIT 1
) a ON true
"""

# The lease log job by job.
CREATE_JOB_EVENT = """
CREATE VIEW leasequeue_jobevent AS
SELECT e.id * 1024 + u.n - 1 AS id, e.id AS event, e.txid, e.occurred_at, e.queue_id, u.seq, e.low, e.high, e.claim, e.deadline,
    CASE WHEN e.kind NOT IN (1, 9, 11) THEN COALESCE(u.deliveries, 1) END AS deliveries, u.waited, u.ran, e.kind, e.node, e.name,
    e.detail
FROM leasequeue_leaseevent e
CROSS JOIN LATERAL ROWS FROM (unnest(e.seqs), unnest(e.deliveries), unnest(e.waited), unnest(e.ran)) WITH ORDINALITY
    AS u(seq, deliveries, waited, ran, n)
"""

# The job is ``j``, its queue ``q``, its place in a workflow ``m``, its last failed attempt ``a``, what its place says ``p``.
COLUMNS = """{seq} AS seq, {queue} AS queue_id, {state} AS state, j.name AS task, j.data,
    CASE WHEN json_typeof(j.data) = 'object' THEN j.data -> 'args' END AS args,
    CASE WHEN json_typeof(j.data) = 'object' THEN j.data -> 'kwargs' END AS kwargs, j.meta, j.progress,
    (CASE q.priority_order WHEN 'asc' THEN j.rank WHEN 'desc' THEN -j.rank ELSE 0 END)::int AS priority,
    j.created_at AS enqueued_at, p.available_at, p.started_at, p.finished_at, p.expires_at, p.deadline, p.deliveries,
    j.max_deliveries, p.worker, COALESCE(p.error_type, a.error_type) AS error_type,
    COALESCE(p.error, a.message) AS error, COALESCE(p.fingerprint, a.fingerprint) AS fingerprint,
    m.workflow AS workflow_id, j.key, j.tag, leasequeue_tags(j.meta) AS tags, p.claim, j.origin"""

ATTEMPT = """LEFT JOIN LATERAL (
    SELECT t.error_type, t.message, t.fingerprint FROM leasequeue_attempt t WHERE t.seq = j.seq AND {live}
    ORDER BY t.id + 0 DESC LIMIT 1) a ON true"""

# What a place says of its job: name and type of each column.
PLACE = {
    "available_at": "timestamptz",
    "started_at": "timestamptz",
    "finished_at": "timestamptz",
    "expires_at": "timestamptz",
    "deadline": "timestamptz",
    "deliveries": "int",
    "worker": "text",
    "claim": "bigint",
    "error_type": "text",
    "error": "text",
    "fingerprint": "text",
}

RESULT = {
    "started_at": "r.claimed_at",
    "worker": "r.node",
    **{
        name: f"r.{name}"
        for name in ("finished_at", "expires_at", "deliveries", "claim", "error_type", "error", "fingerprint")
    },
}
READY = {"available_at": "r.ready_at", "expires_at": "r.expires_at", "deliveries": "r.deliveries"}
DELAYED = {
    "available_at": "CASE WHEN r.available_at < '9000-01-01 00:00+00' THEN r.available_at END",
    "expires_at": "r.expires_at",
    "deliveries": "r.deliveries",
}
DEAD = {
    "finished_at": "r.dead_at",
    **{name: f"r.{name}" for name in ("expires_at", "deliveries", "error_type", "error", "fingerprint")},
}
LEASED = {
    "started_at": "c.created_at",
    "expires_at": "CASE WHEN j.expires_at IS NOT NULL THEN GREATEST(j.expires_at, c.deadline + c.grace_ms * interval '1 ms') END",
    "deadline": "c.deadline",
    "deliveries": "COALESCE(c.deliveries[array_position(c.seqs, j.seq)], 1)",
    "worker": "c.node",
    "claim": "c.token",
}

OVER = "r.expires_at <= statement_timestamp()"
ALIVE = "(r.expires_at IS NULL OR r.expires_at > statement_timestamp())"
HELD = "r.available_at >= '9000-01-01 00:00+00' AND r.available_at < '9001-01-01 00:00+00'"
# Others before it in its workflow failed or were cancelled.
CUT_OFF = "r.available_at >= '9001-01-01 00:00+00'"
TIMED = "r.available_at < '9000-01-01 00:00+00'"


def place(values):
    """Return the columns of a place."""
    return ", ".join(f"({values.get(name, 'NULL')})::{kind} AS {name}" for name, kind in PLACE.items())


DUE = {**DELAYED, "available_at": "r.available_at"}
RESULT_STATE = "(ARRAY['completed', 'failed', 'cancelled'])[r.state]"

BY_NUMBER = f"""
CREATE VIEW leasequeue_jobs AS
SELECT {COLUMNS.format(seq="j.seq", queue="j.queue_id", state="p.state")}
FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id
LEFT JOIN leasequeue_member m ON m.seq = j.seq
CROSS JOIN LATERAL (
    SELECT {RESULT_STATE} AS state, {place(RESULT)}
    FROM leasequeue_jobresult r WHERE r.seq = j.seq
    UNION ALL
    SELECT CASE WHEN {OVER} THEN 'expired' ELSE 'ready' END, {place(READY)}
    FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
    UNION ALL
    SELECT CASE WHEN {OVER} THEN 'expired' WHEN {HELD} THEN 'waiting' WHEN {CUT_OFF} THEN 'cancelled' ELSE 'delayed' END, {place(DELAYED)}
    FROM leasequeue_delayed r WHERE r.seq = j.seq
    UNION ALL
    SELECT 'dead', {place(DEAD)} FROM leasequeue_deadletter r WHERE r.seq = j.seq AND r.in_place
    UNION ALL
    SELECT 'leased', {place(LEASED)} FROM leasequeue_claim c WHERE c.queue_id = j.queue_id AND j.seq = ANY (c.seqs)
    LIMIT 1) p
{ATTEMPT.format(live="p.error_type IS NULL AND p.finished_at IS NULL")}
"""  # nosec  # B608: texts of this file


def branch(state, source, seq, queue, values, condition, *, live="true"):
    """Return the jobs of one place. Where the state is a constant, who asks for another one does not read the branch."""
    columns = COLUMNS.format(seq=seq, queue=queue, state=f"({state})::text")
    # Jobs are looked up one by one, whatever the planner expects of the tables.
    return f"""SELECT {columns}
FROM {source} CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = {seq} OFFSET 0) j
CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = j.queue_id OFFSET 0) q
LEFT JOIN LATERAL (SELECT * FROM leasequeue_member m WHERE m.seq = j.seq OFFSET 0) m ON true
CROSS JOIN LATERAL (SELECT {place(values)}) p
{ATTEMPT.format(live=live)}
WHERE {condition}"""  # nosec  # B608: texts of this file


def ended(state, condition, source="leasequeue_jobresult r"):
    """Return the jobs that ended so."""
    return branch(state, source, "r.seq", "r.queue_id", RESULT, condition, live="r.finished_at IS NULL")


# Tables without their jobs, so that an order of both by number or time is merged from their indexes.
ENDED = f"""(
    SELECT seq, queue_id, state, claimed_at, finished_at, expires_at, deliveries, node, claim, error_type, error, fingerprint
    FROM leasequeue_jobresult
    UNION ALL
    SELECT seq, queue_id, 3::smallint, NULL, NULL, expires_at, deliveries, NULL, NULL, NULL, NULL, NULL
    FROM leasequeue_delayed r WHERE {CUT_OFF} AND {ALIVE}) r"""  # nosec  # B608: texts of this file

# A view for each place in which jobs of a state stand. Without a UNION, so that an order by its time goes by the index.
PLACES = {
    "completed": ended("'completed'", "r.state = 1"),
    "failed": ended("'failed'", "r.state = 2"),
    "cancelled": ended("'cancelled'", "r.state = 3", ENDED),
    "ready": branch("'ready'", "leasequeue_ready r", "r.seq", "r.queue_id", READY, ALIVE),
    "expired": branch("'expired'", "leasequeue_ready r", "r.seq", "r.queue_id", READY, OVER),
    "expired_delayed": branch("'expired'", "leasequeue_delayed r", "r.seq", "r.queue_id", DELAYED, OVER),
    "delayed": branch("'delayed'", "leasequeue_delayed r", "r.seq", "r.queue_id", DUE, f"{TIMED} AND {ALIVE}"),
    "waiting": branch("'waiting'", "leasequeue_delayed r", "r.seq", "r.queue_id", DELAYED, f"{HELD} AND {ALIVE}"),
    "dead": branch("'dead'", "leasequeue_deadletter r", "r.seq", "r.queue_id", DEAD, "r.in_place", live="false"),
    "leased": branch(
        "'leased'",
        "leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)",
        "u.seq",
        "c.queue_id",
        LEASED,
        "true",
    ),
}

BY_STATE = ";\n".join(
    [f"CREATE VIEW leasequeue_jobs_{place} AS\n{rows}" for place, rows in PLACES.items()]
    + [f"CREATE VIEW leasequeue_jobs_finished AS\n{ended(RESULT_STATE, 'true', ENDED)}"]
    + [
        "CREATE VIEW leasequeue_jobs_by_state AS\n"
        + "\nUNION ALL\n".join(f"SELECT * FROM leasequeue_jobs_{place}" for place in PLACES)  # nosec  # B608: names
    ]
)

DROP = ";\n".join(
    f"DROP VIEW leasequeue_jobs{view}" for view in ("_by_state", "_finished", *(f"_{place}" for place in PLACES), "")
)


class Migration(migrations.Migration):
    dependencies = [("leasequeue", "0005_operators")]

    operations = [
        migrations.RunSQL(CREATE_LIVE_JOB, "DROP VIEW leasequeue_livejob"),
        migrations.RunSQL(CREATE_JOB_EVENT, "DROP VIEW leasequeue_jobevent"),
        migrations.RunSQL(BY_NUMBER + ";\n" + BY_STATE, DROP),
        table(
            "LiveJob",
            seq=models.BigIntegerField(primary_key=True),
            db_table="leasequeue_livejob",
            managed=False,
            default_permissions=(),
        ),
        table(
            "JobEvent",
            id=models.BigIntegerField(primary_key=True),
            db_table="leasequeue_jobevent",
            managed=False,
            default_permissions=(),
        ),
    ]

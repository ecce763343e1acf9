-- Purpose: the state of a claimer's queues: due work, whether jobs are ready, where to begin reading.
-- Parameters: project, queues (names in order), jitter (queues whose claims gather in a longer window than so many ms
--   give nothing), now; what the caller found for itself on this connection (pid and started, of the process and its
--   server; on another it counts for nothing): arrays of equal length ids, places (ranks), floors; head (the first
--   number that had not been drawn when it looked last).
-- Index: leasequeue_queue_name, leasequeue_rank_place, leasequeue_floor_place, leasequeue_ready_pkey (its fresh lane
--   from the floor on); probes leasequeue_claim_deadline and leasequeue_delayed_due from the floor on,
--   leasequeue_ready_expires, leasequeue_flowturn_due and leasequeue_dead_expires where dead_ttl_ms is set. The probes
--   order their one row (EXISTS would drop the order): else a planner who expects many such rows reads the table from
--   its beginning.
-- Pages: 680
-- Returns: a QueueLook of each queue that is there, in order. Nothing is due where none may be claimed; mark is null
--   when a floor would rise by less than 100 positions, or in a transaction that had an id before.
WITH clock AS MATERIALIZED (
    SELECT {now()} AS now, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
        pg_current_xact_id_if_assigned() IS NULL AS marks,
        COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) + 1 AS head
), own AS MATERIALIZED (
    SELECT o.* FROM ROWS FROM (unnest(%(ids)s::bigint[]), unnest(%(places)s::int[]), unnest(%(floors)s::bigint[]))
        AS o(queue_id, rank, low)
    WHERE pg_backend_pid() = %(pid)s::int AND pg_postmaster_start_time() = %(started)s::timestamptz
), queues AS MATERIALIZED (
    SELECT q.id, q.name, q.type,
        q.type = 'queue' AND q.paused_at IS NULL AND q.claim_jitter_ms <= %(jitter)s::int AS claimable, u.ord,
        q.dead_ttl_ms, q.concurrency, {since(q.id, {floor.DELAYED})} AS delayed, {since(q.id, {floor.CLAIM})} AS leased,
        {unnoted(q.id, (SELECT now FROM clock))} AS unnoted,
        (SELECT f.at FROM leasequeue_flowturn f WHERE f.queue_id = q.id ORDER BY f.at LIMIT 1) AS turn
    FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS u(name, ord)
    JOIN leasequeue_queue q ON q.project = %(project)s AND q.name = u.name
)
SELECT queues.id AS queue_id, queues.name, queues.type, queues.claimable,
    CASE WHEN NOT queues.claimable THEN 0 ELSE
        {due.LEASES} * (EXISTS (SELECT FROM leasequeue_claim c WHERE c.queue_id = queues.id
            AND c.deadline < (SELECT now FROM clock)
            AND c.deadline >= queues.leased ORDER BY c.deadline LIMIT 1))::int
        + {due.DELAYED} * (EXISTS (SELECT FROM leasequeue_delayed d WHERE d.queue_id = queues.id
            AND d.available_at <= (SELECT now FROM clock)
            AND d.available_at >= queues.delayed ORDER BY d.available_at LIMIT 1))::int
        + {due.EXPIRED} * (COALESCE((SELECT true FROM leasequeue_ready r
            WHERE r.queue_id = queues.id AND r.expires_at IS NOT NULL
            AND r.expires_at <= (SELECT now FROM clock) ORDER BY r.expires_at LIMIT 1), CASE
                WHEN queues.dead_ttl_ms > 0 THEN (
            SELECT true FROM leasequeue_deadletter x WHERE x.queue_id = queues.id AND x.in_place
            AND x.expires_at <= (SELECT now FROM clock) ORDER BY x.expires_at LIMIT 1) END) IS NOT NULL)::int
        + {due.TURNS} * COALESCE(queues.turn <= (SELECT now FROM clock), false)::int END AS due,
    COALESCE(x.has_returned, false) AS has_returned, COALESCE(x.has_fresh, false) AS has_fresh,
    COALESCE(x.ranks, '{}') AS ranks, COALESCE(x.lows, '{}') AS lows, COALESCE(x.proposed, '{}') AS proposed,
    clock.xmin AS oldest,
    CASE WHEN clock.marks AND x.gain > 100 THEN pg_current_xact_id()::text::bigint END AS mark, clock.head,
    pg_backend_pid() AS pid, pg_postmaster_start_time() AS started,
    CASE
        WHEN queues.concurrency > 0 THEN queues.concurrency - (
        SELECT COALESCE(sum(cardinality(c.seqs)), 0) FROM leasequeue_claim c WHERE c.queue_id = queues.id) END AS slots,
    CASE WHEN queues.claimable THEN extract(epoch FROM queues.turn - clock.now)::float8 END AS turn_in, queues.unnoted
FROM clock, queues CROSS JOIN LATERAL (
    SELECT array_agg(k.rank) AS ranks, array_agg(COALESCE(w.first, v.low)) AS lows,
        array_agg(COALESCE(w.first, %(head)s::bigint)) AS proposed, max(COALESCE(w.first,
            %(head)s::bigint) - v.low) AS gain, bool_or(w.first IS NOT NULL) AS has_fresh,
        bool_or(EXISTS (SELECT FROM leasequeue_ready r WHERE r.queue_id = queues.id AND r.rank = k.rank
            AND r.lane = {AGAIN}
            ORDER BY r.position LIMIT 1)) AS has_returned
    FROM (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = queues.id ORDER BY k.rank) k
    CROSS JOIN LATERAL (SELECT GREATEST({floor(queues.id, {floor.READY}, k.rank)},
        (SELECT max(o.low) FROM own o WHERE o.queue_id = queues.id AND o.rank = k.rank)) AS low OFFSET 0) v
    CROSS JOIN LATERAL (SELECT (SELECT r.position FROM leasequeue_ready r
        WHERE r.queue_id = queues.id AND r.rank = k.rank
        AND r.lane = {FRESH} AND r.position >= v.low ORDER BY r.position LIMIT 1) AS first OFFSET 0) w
) x
ORDER BY queues.ord

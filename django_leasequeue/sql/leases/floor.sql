-- Purpose: raise floors. A caller proposes the lowest live value that it saw, with a mark, a transaction id of its own that is
--   drawn after that; when every transaction below the mark has ended, nothing lower can appear any more but what is there now.
--   So: raise to the proposed value, or to what is lower by then; and propose anew. (Who draws a number of a job has a
--   transaction id by then. A snapshot's xmax is no mark: it is only one more than the last that ended, and transactions
--   beyond it may be running.) Times are held 5 seconds back. Of a queue in which there is nothing they are raised every 10
--   seconds only.
--   A floor of times that is less than 5 seconds behind proves that the clock went back: it is removed, and so are proposals.
--   The commit does not wait for the disk, nor do enqueues wait behind it: a floor that a crash forgets is raised again.
-- Parameters: queues (ids; null: all); the server process and the start of its server that answered the caller last (pid,
--   started): of another one, what follows counts for nothing, since it may draw the same numbers again; arrays of equal length,
--   what the caller proposed before: ids, kinds, ranks, lows, marks; head (the first number that had not been drawn when the
--   caller asked last, for queues where nothing waits: one that is read here may have been drawn after the snapshot, by a
--   transaction that the mark does not cover); now, autocommit.
-- Index: leasequeue_rank_place, leasequeue_floor_place, leasequeue_ready_pkey, leasequeue_delayed_due,
--   leasequeue_claim_deadline, each from the floor on.
-- Pages: 60 + 7 a row
-- Returns: queue id, kind, rank, the floor now, lowest live value, mark (null in a transaction that had an id before),
--   oldest running transaction, head for the next call, pid, started.
WITH t AS MATERIALIZED (
    SELECT {now()} AS now, (extract(epoch FROM {now()} - interval '5 seconds') * 1000000)::bigint AS limit,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
        pg_current_xact_id_if_assigned() IS NULL AS marks,
        COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) + 1 AS head,
        CASE WHEN pg_backend_pid() = %(pid)s::int AND pg_postmaster_start_time() = %(started)s::timestamptz
            THEN %(head)s::bigint END AS known,
        CASE WHEN %(autocommit)s::bool THEN set_config('synchronous_commit', 'off', true) END
), p AS MATERIALIZED (
    SELECT DISTINCT k.queue_id, 0 AS kind, k.rank::int AS rank FROM leasequeue_queuerank k
    WHERE %(queues)s::bigint[] IS NULL OR k.queue_id = ANY (%(queues)s::bigint[])
    UNION ALL
    SELECT q.id, kind, 0 FROM leasequeue_queue q, (VALUES (1), (2)) AS v(kind)
    WHERE q.type = 'queue' AND (%(queues)s::bigint[] IS NULL OR q.id = ANY (%(queues)s::bigint[]))
), f AS MATERIALIZED (
    SELECT p.*, COALESCE(v.value, 0) AS made, CASE WHEN p.kind = 0 OR v.value <= t.limit THEN COALESCE(v.value, 0) ELSE 0 END AS value,
        v.made_at, a.low AS proposed, a.mark
    FROM t CROSS JOIN p LEFT JOIN LATERAL (SELECT f.value, f.made_at FROM leasequeue_queuefloor f WHERE f.queue_id = p.queue_id AND f.kind = p.kind
        AND f.rank = p.rank ORDER BY f.value DESC LIMIT 1) v ON true
    LEFT JOIN ROWS FROM (unnest(%(ids)s::bigint[]), unnest(%(kinds)s::int[]), unnest(%(ranks)s::int[]), unnest(%(lows)s::bigint[]),
        unnest(%(marks)s::bigint[])) AS a(queue_id, kind, rank, low, mark)
        ON a.queue_id = p.queue_id AND a.kind = p.kind AND a.rank = p.rank AND t.known IS NOT NULL
            AND (p.kind = 0 OR a.low <= t.limit)
), x AS MATERIALIZED (
    SELECT f.*, t.*, CASE f.kind
        WHEN 0 THEN COALESCE((SELECT r.position FROM leasequeue_ready r WHERE r.queue_id = f.queue_id AND r.rank = f.rank
            AND r.lane = 2 AND r.position >= f.value ORDER BY r.position LIMIT 1), t.known, 0)
        WHEN 1 THEN LEAST(t.limit, (SELECT (extract(epoch FROM d.available_at) * 1000000)::bigint FROM leasequeue_delayed d
            WHERE d.queue_id = f.queue_id AND d.available_at >= 'epoch'::timestamptz + f.value * interval '1 us'
            ORDER BY d.available_at LIMIT 1))
        ELSE LEAST(t.limit, (SELECT (extract(epoch FROM c.deadline) * 1000000)::bigint FROM leasequeue_claim c
            WHERE c.queue_id = f.queue_id AND c.deadline >= 'epoch'::timestamptz + f.value * interval '1 us'
            ORDER BY c.deadline LIMIT 1)) END AS low
    FROM f, t
), y AS MATERIALIZED (
    SELECT x.*, CASE WHEN x.mark <= x.xmin AND (x.made_at IS NULL OR x.made_at < x.now - interval '10 seconds'
            OR bool_or(x.low <> CASE x.kind WHEN 0 THEN x.known ELSE x.limit END
                OR x.kind = 0 AND (SELECT true FROM leasequeue_ready r WHERE r.queue_id = x.queue_id AND r.rank = x.rank
                    AND r.lane = 1 ORDER BY r.position LIMIT 1)) OVER (PARTITION BY x.queue_id))
        THEN GREATEST(x.value, LEAST(x.proposed, x.low)) ELSE x.value END AS floor FROM x
), fallen AS (
    DELETE FROM leasequeue_queuefloor WHERE id = ANY (ARRAY(
        SELECT o.id FROM (SELECT * FROM y WHERE y.made > y.value OFFSET 0) y CROSS JOIN LATERAL (
            SELECT f.id FROM leasequeue_queuefloor f WHERE f.queue_id = y.queue_id AND f.kind = y.kind AND f.rank = y.rank
                AND f.value > y.value ORDER BY f.value) o))
), raised AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
    SELECT y.queue_id, y.kind, y.rank, y.floor, y.now FROM y WHERE y.floor > y.value
), old AS MATERIALIZED (
    SELECT o.id FROM y CROSS JOIN LATERAL (
        SELECT f.id FROM leasequeue_queuefloor f WHERE f.queue_id = y.queue_id AND f.kind = y.kind AND f.rank = y.rank
            AND f.value < y.value ORDER BY f.value DESC LIMIT 10 FOR UPDATE SKIP LOCKED) o
    WHERE y.floor > y.value
), cleared AS (
    DELETE FROM leasequeue_queuefloor WHERE id = ANY (ARRAY(SELECT id FROM old))
)
SELECT y.queue_id, y.kind, y.rank, y.floor, y.low, CASE WHEN y.marks THEN pg_current_xact_id()::text::bigint END,
    y.xmin, y.head, pg_backend_pid(), pg_postmaster_start_time() FROM y

-- Purpose: end a bulk enqueue: floors of new ranks, the events, waking who waits for the queue.
-- Parameters: queue (id), ranks (of the jobs, once each), seqs, names (one for all, or one a job), log (write events), wake,
--   relax (the queue does not ask to wait for the disk), at (time of the batch), now, autocommit.
-- Index: leasequeue_floor_place; inserts only.
-- Returns: one row.
WITH floors AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value)
    SELECT %(queue)s::bigint, 0, r.rank, 0 FROM unnest(%(ranks)s::smallint[]) AS r(rank)
    WHERE NOT EXISTS (
        SELECT FROM leasequeue_queuefloor f WHERE f.queue_id = %(queue)s::bigint AND f.kind = 0 AND f.rank = r.rank)
    ORDER BY r.rank
    ON CONFLICT DO NOTHING
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, enqueued_at, name)
    SELECT (SELECT pg_current_xact_id()::text::bigint), %(at)s::timestamptz, %(queue)s::bigint, i.seq, 1, %(at)s::timestamptz,
        COALESCE(i.name, %(name)s::text)
    FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(names)s::text[])) AS i(seq, name) WHERE %(log)s::bool
)
SELECT CASE WHEN %(relax)s::bool AND %(autocommit)s::bool THEN set_config('synchronous_commit', 'off', true) END,
    CASE WHEN NOT %(wake)s::bool THEN NULL
    WHEN pg_try_advisory_lock(1280657731, %(queue)s::int) THEN pg_advisory_unlock(1280657731, %(queue)s::int)::text
    ELSE pg_notify('leasequeue', 'q' || %(queue)s::int)::text END

-- Purpose: advance the floors, in three steps a second or more apart: propose a candidate (the lowest live value), note a
--   mark (the next transaction id), and when every transaction below the mark has ended apply it, after looking once more
--   for something lower. Times are never proposed beyond now: what comes later is due later. Every minute look from zero:
--   a wrong floor delays a job, never loses it. A floor that a slow transaction has lowered and holds is passed over.
-- Parameters: queues (ids; null: all), now.
-- Index: leasequeue_job_ready, leasequeue_job_delayed, leasequeue_claim_deadline, each from the floor on.
-- Returns: queue id, kind, rank, value, candidate of the floors that changed.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax,
        COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) + 1 AS head
), x AS MATERIALIZED (
    SELECT f.*, t.*, CASE f.kind
        WHEN 0 THEN COALESCE((SELECT j.position FROM leasequeue_job j WHERE j.queue_id = f.queue_id AND j.rank = f.rank
            AND j.state = 0 AND j.position >= f.since ORDER BY j.position LIMIT 1), t.head)
        WHEN 1 THEN (extract(epoch FROM LEAST(t.now, (SELECT j.available_at FROM leasequeue_job j
            WHERE j.queue_id = f.queue_id AND j.state = 1
            AND j.available_at >= 'epoch'::timestamptz + f.since * interval '1 us' ORDER BY j.available_at LIMIT 1)
            )) * 1000000)::bigint
        ELSE (extract(epoch FROM LEAST(t.now, (SELECT c.deadline FROM leasequeue_claim c WHERE c.queue_id = f.queue_id
            AND c.deadline >= 'epoch'::timestamptz + f.since * interval '1 us' ORDER BY c.deadline LIMIT 1)
            )) * 1000000)::bigint END AS low
    FROM (
        SELECT l.*, CASE WHEN l.rechecked_at IS NULL OR l.rechecked_at < t.now - interval '1 minute' THEN 0
            ELSE l.value END AS since
        FROM leasequeue_queuefloor l, t
        WHERE %(queues)s::bigint[] IS NULL OR l.queue_id = ANY (%(queues)s::bigint[])
    ) f, t
), due AS MATERIALIZED (
    SELECT f.id FROM leasequeue_queuefloor f WHERE f.id = ANY (ARRAY(SELECT x.id FROM x
        WHERE x.low < x.value OR x.mark <= x.xmin OR (x.since = 0 AND x.value > 0)
            OR (x.candidate IS NULL AND x.low > x.value)
            OR (x.mark IS NULL AND x.candidate > x.value AND x.candidate_at <= x.now - interval '1 second')))
    ORDER BY f.id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE leasequeue_queuefloor f SET
    value = CASE WHEN f.mark <= x.xmin THEN LEAST(f.candidate, x.low) ELSE LEAST(f.value, x.low) END,
    candidate = CASE WHEN f.candidate IS NULL OR f.mark <= x.xmin THEN x.low ELSE LEAST(f.candidate, x.low) END,
    candidate_at = CASE WHEN f.candidate IS NULL OR f.mark <= x.xmin THEN x.now ELSE f.candidate_at END,
    mark = CASE WHEN f.candidate IS NULL OR f.mark <= x.xmin THEN NULL
        WHEN f.mark IS NULL AND f.candidate_at <= x.now - interval '1 second' THEN x.xmax ELSE f.mark END,
    rechecked_at = CASE WHEN x.since = 0 THEN x.now ELSE f.rechecked_at END
FROM x
WHERE x.id = f.id AND f.id = ANY (ARRAY(SELECT id FROM due))
RETURNING f.queue_id, f.kind, f.rank, f.value, f.candidate

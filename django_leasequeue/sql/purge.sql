-- Purpose: remove jobs of a queue by state, oldest number first, a bounded batch at a time.
-- Parameters: queue (id), states (smallint[]), before (seq, exclusive; null: all), tag, tag_prefix (null: any), size, now.
-- Index: leasequeue_job_pkey or leasequeue_job_tag, leasequeue_topicstate_pkey; an operator's statement, not a hot one.
-- Returns: seq, key.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), d AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j
    WHERE j.queue_id = %(queue)s AND j.state = ANY (%(states)s::smallint[])
        AND (%(before)s::bigint IS NULL OR j.seq < %(before)s::bigint)
        AND (%(tag)s::text IS NULL OR j.tag = %(tag)s::text)
        AND (%(tag_prefix)s::text IS NULL OR starts_with(j.tag, %(tag_prefix)s::text))
    LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM leasequeue_job j USING t WHERE j.seq = ANY (ARRAY(SELECT seq FROM d))
    RETURNING j.seq, j.queue_id, j.state, j.key, j.created_at, j.name, j.deliveries, t.now
), remembered AS (
    INSERT INTO leasequeue_topicstate AS s (queue_id, head_seq, last_write_at)
    SELECT queue_id, max(seq), max(created_at) FROM gone GROUP BY queue_id
    ON CONFLICT (queue_id) DO UPDATE SET head_seq = GREATEST(s.head_seq, excluded.head_seq),
        last_write_at = GREATEST(s.last_write_at, excluded.last_write_at), records = NULL, bytes = NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, deliveries, enqueued_at, name, detail)
    SELECT pg_current_xact_id()::text::bigint, g.now, g.queue_id, g.seq, 10, g.deliveries, g.created_at, g.name,
        '{"reason": "purged"}'::jsonb
    FROM gone g WHERE g.state <> 4
)
SELECT seq, key FROM gone

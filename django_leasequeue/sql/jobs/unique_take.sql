-- Purpose: take the keys of unique jobs, or wait for who has them, and lock their rows until the transaction ends: in
--   order, so that two batches with the same keys cannot deadlock.
-- Parameters: project, queue, keys (each once, sorted).
-- Index: leasequeue_queue_name, leasequeue_uniquekey_pkey.
-- Pages: 50 + 12 a row
-- Returns: queue id, its result_ttl_ms, key, number of the job that took it before (0: none). No row: there is no such
--   queue.
{keeps_host_settings(inserts, and looks at the queue: no plan reads more)}
WITH queue AS MATERIALIZED (
    SELECT id, result_ttl_ms FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), taken AS (
    INSERT INTO leasequeue_uniquekey AS u (queue_id, key, seq, until_start)
    SELECT queue.id, k.key, 0, false
    FROM queue, unnest(%(keys)s::text[]) WITH ORDINALITY AS k(key, n) ORDER BY k.n
    ON CONFLICT (queue_id, key) DO UPDATE SET seq = u.seq
    RETURNING u.key, u.seq
)
SELECT queue.id, queue.result_ttl_ms, t.key, t.seq FROM queue, taken t

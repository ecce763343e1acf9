-- Purpose: remove keys of unique jobs whose jobs are gone: one step through the table in order. A key that a session decides about
--   at this moment stays.
-- Parameters: queue and key (the last of the step before, exclusive), size (keys that are looked at).
-- Index: leasequeue_uniquekey_pkey, leasequeue_job_pkey.
-- Pages: 40 + 9 a row
-- Returns: queue id and key of the last that was looked at (no row: there are no more), how many went.
WITH u AS MATERIALIZED (
    SELECT queue_id, key, seq FROM leasequeue_uniquekey
    WHERE (queue_id, key) > (%(queue)s::bigint, %(key)s::text) ORDER BY queue_id, key LIMIT %(size)s::int
), d AS MATERIALIZED (
    SELECT * FROM u WHERE NOT EXISTS (SELECT FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0)
), x AS MATERIALIZED (
    SELECT k.place FROM d CROSS JOIN LATERAL (
        SELECT k.ctid AS place FROM leasequeue_uniquekey k
        WHERE k.queue_id = d.queue_id AND k.key = d.key AND k.seq = d.seq FOR UPDATE SKIP LOCKED) k
), gone AS (
    DELETE FROM leasequeue_uniquekey WHERE ctid = ANY (ARRAY(SELECT place FROM x)) RETURNING 1
)
SELECT u.queue_id, u.key, (SELECT count(*) FROM gone) FROM u ORDER BY u.queue_id DESC, u.key DESC LIMIT 1

-- Purpose: remove keys of deleted unique jobs: one step through the table in order. A key that a session
--   decides about at this moment stays.
-- Parameters: queue and key (the last of the step before, exclusive), size (keys that are looked at).
-- Index: leasequeue_uniquekey_pkey, leasequeue_job_pkey.
-- Pages: 40 + 9 a row
-- Returns: queue id and key of the last that was looked at (no row: there are no more), how many went.
WITH looked AS MATERIALIZED (
    SELECT queue_id, key, seq FROM leasequeue_uniquekey
    WHERE (queue_id, key) > (%(queue)s::bigint, %(key)s::text) ORDER BY queue_id, key LIMIT %(size)s::int
), done AS MATERIALIZED (
    SELECT * FROM looked WHERE NOT EXISTS (SELECT FROM leasequeue_job j WHERE j.seq = looked.seq OFFSET 0)
), places AS MATERIALIZED (
    SELECT k.place FROM done CROSS JOIN LATERAL (
        SELECT k.ctid AS place FROM leasequeue_uniquekey k
        WHERE k.queue_id = done.queue_id AND k.key = done.key AND k.seq = done.seq FOR UPDATE SKIP LOCKED) k
), gone AS (
    DELETE FROM leasequeue_uniquekey WHERE ctid = ANY (ARRAY(SELECT place FROM places)) RETURNING 1
)
SELECT looked.queue_id, looked.key, (SELECT count(*) FROM gone)
FROM looked ORDER BY looked.queue_id DESC, looked.key DESC LIMIT 1

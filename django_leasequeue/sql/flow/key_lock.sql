-- Purpose: lock more keys without waiting; those that another session holds get a turn instead.
-- Parameters: arrays of equal length: keys (ids, each once), queues (a queue of each, whose claimers take the turn).
-- Index: leasequeue_limitkey_pkey.
-- Pages: 20 + 8 a row
WITH asked AS MATERIALIZED (
    SELECT * FROM ROWS FROM (unnest(%(keys)s::bigint[]), unnest(%(queues)s::bigint[])) AS i(key, queue_id)
), locked AS MATERIALIZED (
    SELECT id FROM leasequeue_limitkey WHERE id = ANY (%(keys)s::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
), turns AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key)
    SELECT asked.queue_id, 'epoch', {turn.ADMIT}, asked.key FROM asked
    WHERE asked.key <> ALL (ARRAY(SELECT id FROM locked))
)
SELECT id FROM locked

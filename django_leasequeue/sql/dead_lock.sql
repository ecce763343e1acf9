-- Purpose: lock dead letters that are to be changed, if they still are what was seen; nobody waits.
-- Parameters: seqs, until (letters that died later are other deaths; null: any).
-- Index: leasequeue_job_pkey, leasequeue_queue_pkey.
-- Returns: for each seq, in order of the numbers: seq, project, queue, state, name of the queue it came from (null: none, or
--   it is gone), and why it cannot be changed (null: it is locked): gone, retried, died_again, busy.
WITH l AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.state, j.source_queue FROM leasequeue_job j
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.dead_at <= COALESCE(%(until)s::timestamptz, 'infinity') AND j.state IN (0, 3, 4)
    ORDER BY j.seq FOR UPDATE OF j SKIP LOCKED
)
SELECT l.seq, q.project, q.name, l.state, h.name, CASE WHEN q.name IS NULL THEN 'gone' END FROM l
LEFT JOIN LATERAL (SELECT q.project, q.name FROM leasequeue_queue q WHERE q.id = l.queue_id LIMIT 1) q ON true
LEFT JOIN LATERAL (SELECT h.name FROM leasequeue_queue h WHERE h.id = l.source_queue AND h.type = 'queue' LIMIT 1) h ON true
UNION ALL
SELECT u.seq, NULL, NULL, NULL, NULL, CASE WHEN j.seq IS NULL THEN 'gone' WHEN j.dead_at IS NULL THEN 'retried'
    WHEN j.dead_at > %(until)s::timestamptz THEN 'died_again' ELSE 'busy' END
FROM (SELECT unnest(%(seqs)s::bigint[]) AS seq EXCEPT SELECT seq FROM l) u
LEFT JOIN LATERAL (SELECT j.seq, j.dead_at FROM leasequeue_job j WHERE j.seq = u.seq LIMIT 1) j ON true
ORDER BY 1

-- Purpose: lock dead letters that are to be changed, if they still are what was seen; nobody waits.
-- Parameters: seqs, until (letters that died later are other deaths; null: any).
-- Index: leasequeue_job_pkey.
-- Returns: for each seq in order: seq, project, queue, state, name of the queue it came from (null: none, or it is gone), and
--   why it cannot be changed (null: it is locked): gone, retried, died_again, busy.
WITH l AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.dead_at <= COALESCE(%(until)s::timestamptz, 'infinity') AND j.state IN (0, 3, 4)
    ORDER BY j.seq FOR UPDATE OF j SKIP LOCKED
)
SELECT u.seq, q.project, q.name, j.state, h.name, CASE WHEN l.seq IS NOT NULL THEN NULL WHEN j.seq IS NULL THEN 'gone'
    WHEN j.dead_at IS NULL THEN 'retried' WHEN j.dead_at > %(until)s::timestamptz THEN 'died_again' ELSE 'busy' END
FROM unnest(%(seqs)s::bigint[]) WITH ORDINALITY AS u(seq, ord)
LEFT JOIN l ON l.seq = u.seq
LEFT JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq LIMIT 1) j ON true
LEFT JOIN leasequeue_queue q ON q.id = j.queue_id LEFT JOIN leasequeue_queue h ON h.id = j.source_queue AND h.type = 'queue'
ORDER BY u.ord

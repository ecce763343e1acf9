-- Purpose: why a settle call did not take these jobs (read only when some were refused).
-- Parameters: project, queue (null: any), seqs, now.
-- Index: leasequeue_job_pkey, leasequeue_queue_pkey.
-- Returns: seq, node (null: not leased), claim, whether the deadline has passed.
WITH j AS MATERIALIZED (
    SELECT seq, queue_id, state, node, claim, deadline FROM leasequeue_job WHERE seq = ANY (%(seqs)s::bigint[])
)
SELECT j.seq, CASE WHEN j.state = 2 THEN j.node END, j.claim,
    j.state = 2 AND j.deadline < COALESCE(%(now)s::timestamptz, clock_timestamp())
FROM j WHERE (SELECT q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
    FROM leasequeue_queue q WHERE q.id = j.queue_id)

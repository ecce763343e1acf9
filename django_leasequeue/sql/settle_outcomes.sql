-- Purpose: why a settle call did not take these jobs (read only when some were refused).
-- Parameters: project, queue (null: any), seqs, now.
-- Index: leasequeue_job_pkey.
-- Returns: seq, node (null: not leased), claim, whether the deadline has passed.
SELECT j.seq, CASE WHEN j.state = 2 THEN j.node END, j.claim,
    j.state = 2 AND j.deadline < COALESCE(%(now)s::timestamptz, clock_timestamp())
FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id
WHERE j.seq = ANY (%(seqs)s::bigint[]) AND q.project = %(project)s
    AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)

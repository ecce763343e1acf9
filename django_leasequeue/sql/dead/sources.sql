-- Purpose: the queues that dead letters came from.
-- Parameters: project, queue (name of the topic they are in), seqs.
-- Index: leasequeue_job_pkey, leasequeue_deadletter_pkey.
-- Pages: 20 + 3 a row
-- Returns: seq, name of the source queue (null if that queue is gone).
SELECT j.seq, CASE WHEN d.in_place THEN q.name ELSE s.name END
FROM leasequeue_queue q CROSS JOIN unnest(%(seqs)s::bigint[]) AS u(seq)
CROSS JOIN LATERAL (SELECT d.seq, d.in_place FROM leasequeue_deadletter d WHERE d.seq = u.seq AND d.queue_id + 0 = q.id OFFSET 0) d
CROSS JOIN LATERAL (SELECT j.seq, j.source_queue FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0) j
LEFT JOIN leasequeue_queue s ON s.id = j.source_queue
WHERE q.project = %(project)s AND q.name = %(queue)s

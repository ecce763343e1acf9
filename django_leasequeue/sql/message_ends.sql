-- Purpose: the oldest and the newest message of a queue, free or held (by the 1,000 claims that end first: those of the
--   oldest messages).
-- Parameters: queue (id), now.
-- Index: leasequeue_job_ready from both ends, leasequeue_claim_deadline and leasequeue_job_pkey for the held ones.
-- Returns: seq, created_at, age in whole seconds: the oldest, then the newest; nothing if there are none.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), m AS MATERIALIZED (
    (SELECT j.seq, j.created_at FROM leasequeue_job j, leasequeue_queuefloor f
     WHERE j.queue_id = %(queue)s AND j.rank = 0 AND j.state = 0 AND f.queue_id = j.queue_id AND f.kind = 0 AND f.rank = 0
        AND j.position >= f.value ORDER BY j.position LIMIT 1)
    UNION ALL
    (SELECT j.seq, j.created_at FROM leasequeue_job j
     WHERE j.queue_id = %(queue)s AND j.rank = 0 AND j.state = 0 ORDER BY j.position DESC LIMIT 1)
    UNION ALL
    (SELECT j.seq, j.created_at FROM (
        SELECT c.id, c.seqs FROM leasequeue_claim c WHERE c.queue_id = %(queue)s ORDER BY c.deadline LIMIT 1000) c
     JOIN leasequeue_job j ON j.seq = ANY (c.seqs) AND j.claim = c.id AND j.state = 2)
)
(SELECT m.seq, m.created_at, GREATEST(0, extract(epoch FROM t.now - m.created_at))::bigint FROM m, t ORDER BY m.seq LIMIT 1)
UNION ALL
(SELECT m.seq, m.created_at, GREATEST(0, extract(epoch FROM t.now - m.created_at))::bigint FROM m, t
 ORDER BY m.seq DESC LIMIT 1)

-- Purpose: end the leases of a queue that were not renewed for some time, so that the next sweep brings their jobs back.
-- Parameters: queue (id), idle (ms without renewal), size (jobs), now.
-- Index: leasequeue_claim_deadline, leasequeue_job_pkey, leasequeue_claim_pkey.
-- Returns: the seqs. When a lease was renewed last is its deadline less the queue's lease_ms, but not before the claim.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT id, lease_ms FROM leasequeue_queue WHERE id = %(queue)s
), held AS MATERIALIZED (
    SELECT u.seq, c.id FROM q JOIN leasequeue_claim c ON c.queue_id = q.id CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
), d AS MATERIALIZED (
    SELECT j.seq, j.claim FROM leasequeue_job j, q, t
    WHERE j.seq = ANY (ARRAY(SELECT seq FROM held)) AND j.state = 2 AND j.queue_id = q.id AND j.deadline >= t.now
        AND GREATEST(j.claimed_at, j.deadline - q.lease_ms * interval '1 ms') < t.now - %(idle)s::bigint * interval '1 ms'
    ORDER BY j.seq LIMIT %(size)s::int FOR UPDATE OF j SKIP LOCKED
), x AS (
    UPDATE leasequeue_job j SET deadline = t.now - interval '1 ms' FROM t
    WHERE j.seq = ANY (ARRAY(SELECT seq FROM d)) RETURNING j.seq, j.claim, j.deadline
), claims AS (
    UPDATE leasequeue_claim c SET deadline = m.deadline
    FROM (SELECT claim, min(deadline) AS deadline FROM x GROUP BY claim) m WHERE c.id = m.claim AND c.deadline > m.deadline
), floors AS (
    UPDATE leasequeue_queuefloor f SET value = LEAST(f.value, m.low), candidate = LEAST(f.candidate, m.low)
    FROM (SELECT (extract(epoch FROM min(deadline)) * 1000000)::bigint AS low FROM x) m
    WHERE f.queue_id = %(queue)s AND f.kind = 2 AND f.rank = 0 AND (f.value > m.low OR f.candidate > m.low)
)
SELECT seq FROM x

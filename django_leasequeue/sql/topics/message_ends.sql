-- Purpose: the oldest and the newest message of a queue, free or held (by the 1,000 claims that end first: those of the
--   oldest messages).
-- Parameters: queue (id), now.
-- Index: leasequeue_ready_pkey from both ends, leasequeue_claim_deadline for the held ones, leasequeue_job_pkey.
-- Pages: 70
-- Returns: seq, created_at, age in whole seconds: the oldest, then the newest; nothing if there are none.
WITH messages AS MATERIALIZED (
    SELECT ends_of_lane.seq FROM (VALUES ({AGAIN}), ({FRESH})) AS l(lane) CROSS JOIN LATERAL (
        (SELECT r.seq FROM leasequeue_ready r WHERE r.queue_id = %(queue)s::bigint AND r.rank = 0 AND r.lane = l.lane
            AND r.position >= CASE WHEN l.lane = {FRESH} THEN {floor(%(queue)s::bigint, {floor.READY}, 0)} ELSE 0 END
            ORDER BY r.position LIMIT 1)
        UNION ALL
        (SELECT r.seq FROM leasequeue_ready r WHERE r.queue_id = %(queue)s::bigint AND r.rank = 0 AND r.lane = l.lane
            ORDER BY r.position DESC LIMIT 1)) ends_of_lane
    UNION ALL
    SELECT u.seq FROM (
        SELECT c.seqs FROM leasequeue_claim c WHERE c.queue_id = %(queue)s::bigint ORDER BY c.deadline LIMIT 1000) c
    CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
), ends AS MATERIALIZED (
    SELECT 1 AS n, min(seq) AS seq FROM messages UNION ALL SELECT 2, max(seq) FROM messages
)
SELECT j.seq, j.created_at, GREATEST(0, extract(epoch FROM {now()} - j.created_at))::bigint AS age
FROM ends CROSS JOIN LATERAL (SELECT j.seq, j.created_at FROM leasequeue_job j WHERE j.seq = ends.seq OFFSET 0) j
ORDER BY ends.n

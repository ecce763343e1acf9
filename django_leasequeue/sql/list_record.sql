-- Purpose: records of a log in order of their numbers, a page at a time; records past their TTL are left out.
-- Parameters: project, queue, seq (of the last record seen; null: from the start), size, now.
-- Index: leasequeue_job_record.
-- Returns: seq, seq.
WITH q AS MATERIALIZED (
    SELECT id, COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s
)
SELECT j.seq, j.seq FROM q CROSS JOIN LATERAL (
    SELECT j.seq FROM leasequeue_job j
    WHERE j.queue_id = q.id AND j.state = 4 AND j.seq > COALESCE(%(seq)s::bigint, -1)
        AND (j.expires_at IS NULL OR j.expires_at > q.now)
    ORDER BY j.seq LIMIT %(size)s::int) j
ORDER BY j.seq

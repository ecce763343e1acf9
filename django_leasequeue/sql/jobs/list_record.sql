-- Purpose: records of a log in order of their numbers, a page at a time; records past their TTL are left out.
-- Parameters: project, queue, seq (of the last record seen; null: from the start), size, now.
-- Index: leasequeue_queue_name, leasequeue_record_pkey.
-- Pages: 20 + 0.1 a row
-- Returns: seq, seq.
WITH q AS MATERIALIZED (
    SELECT id, {now()} AS now FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
)
SELECT r.seq, r.seq FROM q CROSS JOIN LATERAL (
    SELECT r.seq FROM leasequeue_record r
    WHERE r.queue_id = q.id AND r.seq > COALESCE(%(seq)s::bigint, -1) AND (r.expires_at IS NULL OR r.expires_at > q.now)
    ORDER BY r.seq LIMIT %(size)s::int) r
ORDER BY r.seq

-- Purpose: records of a log in order of their numbers, a page at a time; expired records are left out.
-- Parameters: project, queue, seq (of the last record seen; null: from the start), size, now.
-- Index: leasequeue_queue_name, leasequeue_record_pkey.
-- Pages: 20 + 0.1 a row
WITH queue AS MATERIALIZED (
    SELECT id, {now()} AS now FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
)
SELECT r.seq, r.seq FROM queue CROSS JOIN LATERAL (
    SELECT r.seq FROM leasequeue_record r
    WHERE r.queue_id = queue.id AND r.seq > COALESCE(%(seq)s::bigint, -1)
        AND (r.expires_at IS NULL OR r.expires_at > queue.now)
    ORDER BY r.seq LIMIT %(size)s::int) r
ORDER BY r.seq

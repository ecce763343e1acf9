-- Purpose: the disk space that the lease log takes for the jobs of one queue: the pages that its rows stand on.
-- Parameters: queue (id), since (the queue's own time: the log's index keeps to what is newer).
-- Index: leasequeue_event_occurred.
-- Returns: kind, jobs, rows, bytes.
SELECT e.kind, sum(cardinality(e.seqs))::bigint, count(*),
    sum(pg_column_size(e.*) + 4)::float8 / sum(sum(pg_column_size(e.*) + 4)) OVER ()
        * (SELECT count(DISTINCT (p.tableoid, (p.ctid::text::point)[0])) * current_setting('block_size')::int
            FROM leasequeue_leaseevent p WHERE p.occurred_at >= %(since)s::timestamptz AND p.queue_id = %(queue)s::bigint)
FROM leasequeue_leaseevent e
WHERE e.occurred_at >= %(since)s::timestamptz AND e.queue_id = %(queue)s::bigint
GROUP BY e.kind ORDER BY e.kind

-- Purpose: when jobs of one queue were done, by the lease log.
-- Parameters: queue (id), since (the queue's own time: the log's index keeps to what is newer), shares (0..1).
-- Index: leasequeue_event_occurred.
-- Returns: jobs done, time of the last, times at which the shares were done; epoch seconds.
WITH e AS MATERIALIZED (
    SELECT extract(epoch FROM occurred_at)::float8 AS at, sum(cardinality(seqs)) OVER (ORDER BY occurred_at, id) AS done
    FROM leasequeue_leaseevent
    WHERE occurred_at >= %(since)s::timestamptz AND queue_id = %(queue)s::bigint AND kind = 5
)
SELECT COALESCE((SELECT max(done) FROM e), 0)::bigint, (SELECT max(at) FROM e),
    ARRAY(SELECT (SELECT min(e.at) FROM e WHERE e.done >= s.share * (SELECT max(done) FROM e))
        FROM unnest(%(shares)s::float8[]) WITH ORDINALITY AS s(share, n) ORDER BY s.n)

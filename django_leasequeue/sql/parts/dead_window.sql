-- dead_window(order, beyond, letters): seq and dead_at of these dead letters d of some queues in this order, and
-- whether some queue was cut at ``each``: the window then ends where the first such queue ends, and what is beyond is
-- left out.
WITH seen AS MATERIALIZED (
    SELECT x.*, row_number() OVER (PARTITION BY x.queue_id ORDER BY x.dead_at {order}, x.seq {order}) AS n
    FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
        SELECT d.queue_id, d.dead_at, d.seq FROM leasequeue_deadletter d
        WHERE d.queue_id = q.id AND {letters} LIMIT %(each)s::int) x
), horizon AS MATERIALIZED (
    SELECT dead_at, seq FROM seen WHERE n = %(each)s::int ORDER BY dead_at {order}, seq {order} LIMIT 1
)
SELECT seen.seq, seen.dead_at, EXISTS (SELECT FROM horizon) FROM seen
WHERE NOT EXISTS (SELECT FROM horizon h WHERE (seen.dead_at, seen.seq) {beyond} (h.dead_at, h.seq))
ORDER BY seen.dead_at {order}, seen.seq {order} LIMIT %(size)s::int

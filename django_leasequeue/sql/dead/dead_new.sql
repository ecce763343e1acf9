-- Purpose: queues and topics in which many jobs died lately, and how many died there in the hour before.
-- Parameters: queues (ids; null: all), recent (seconds that are lately), least (deaths that are many), cap, now.
-- Index: leasequeue_dead_died, one probe a queue and a range of those with many; leasequeue_queue_pkey.
-- Pages: 20 + 4 a row
-- Returns: queue id, deaths lately, deaths in the hour before, each at most cap + 1; those with most deaths first.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), queues AS MATERIALIZED (
    SELECT q.id FROM leasequeue_queue q WHERE %(queues)s::bigint[] IS NULL
    UNION ALL
    SELECT u.id FROM unnest(%(queues)s::bigint[]) AS u(id)
), lately AS MATERIALIZED (
    SELECT queues.id, l.n, clock.now - %(recent)s::int * interval '1 s' AS since FROM queues CROSS JOIN clock
    CROSS JOIN LATERAL (
        SELECT count(*)::int AS n FROM (
            SELECT FROM leasequeue_deadletter d WHERE d.queue_id = queues.id
                AND d.dead_at > clock.now - %(recent)s::int * interval '1 s'
            ORDER BY d.dead_at DESC LIMIT %(cap)s::int + 1) x
    ) l
)
SELECT lately.id AS queue_id, lately.n AS died, b.n AS died_before FROM lately CROSS JOIN LATERAL (
    SELECT count(*)::int AS n FROM (
        SELECT FROM leasequeue_deadletter d WHERE d.queue_id = lately.id
            AND d.dead_at > lately.since - interval '1 hour' AND d.dead_at <= lately.since
        ORDER BY d.dead_at DESC LIMIT %(cap)s::int + 1) x
) b
WHERE lately.n >= %(least)s::int
ORDER BY lately.n DESC, lately.id

-- Purpose: keep samples; figures that have not changed are written once in ten minutes only.
-- Parameters: arrays of equal length: queues (ids), ready, delayed, leased, dead, records, oldest (times); now.
-- Index: leasequeue_stat_sample: compared and ordered by both its columns, as no other index can. (By the time alone a
--   planner would look for a queue without samples among those of all the others.)
-- Pages: 140
WITH clock AS MATERIALIZED (SELECT {now()} AS now)
INSERT INTO leasequeue_queuestat (queue_id, sampled_at, ready, delayed, leased, dead, records, oldest_at)
SELECT i.queue_id, clock.now, i.ready, i.delayed, i.leased, i.dead, i.records, i.oldest
FROM clock, ROWS FROM (
    unnest(%(queues)s::bigint[]), unnest(%(ready)s::bigint[]), unnest(%(delayed)s::bigint[]),
        unnest(%(leased)s::bigint[]),
    unnest(%(dead)s::bigint[]), unnest(%(records)s::bigint[]), unnest(%(oldest)s::timestamptz[])
) AS i(queue_id, ready, delayed, leased, dead, records, oldest)
WHERE NOT EXISTS (
    SELECT FROM (SELECT * FROM leasequeue_queuestat s WHERE (s.queue_id, s.sampled_at) <= (i.queue_id, 'infinity')
        ORDER BY s.queue_id DESC, s.sampled_at DESC LIMIT 1) s
    WHERE s.queue_id = i.queue_id AND s.sampled_at > clock.now - interval '10 minutes'
        AND (s.ready, s.delayed, s.leased, s.dead, s.records) = (i.ready, i.delayed, i.leased, i.dead, i.records)
)
ON CONFLICT DO NOTHING
RETURNING queue_id

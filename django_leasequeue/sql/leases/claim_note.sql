-- Purpose: note claims of queues, once a minute: the only trace of consumers that poll. The commit does not
--   wait for the disk.
-- Parameters: queues (ids); now, autocommit.
-- Index: leasequeue_queue_pkey, leasequeue_floor_place.
-- Pages: 20 + 20 a row
WITH clock AS MATERIALIZED (
    SELECT {now()} AS now, (extract(epoch FROM {now()}) * 1000000)::bigint AS us,
        CASE WHEN %(autocommit)s::bool THEN set_config('synchronous_commit', 'off', true) END
)
INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
SELECT q.id, {floor.CLAIMED}, 0, clock.us, clock.now FROM clock, leasequeue_queue q
WHERE q.id = ANY (%(queues)s::bigint[]) AND {unnoted(q.id, clock.now)}
RETURNING queue_id

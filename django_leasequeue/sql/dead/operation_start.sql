-- Purpose: create a bulk operation, unless one of its kind is active on the queue (or on all queues, or this is for
--   all).
-- Parameters: kind, project, queue (null: all), filters, seqs (null: by filter), frozen_at, target, rate, jitter_ms,
--   reason, from_step (null: none), user_id, username, expected, expected_capped, now.
-- Index: leasequeue_operation_active. The caller holds operation_lock.
-- Pages: 40
-- Returns: id of the new operation, or null and the id of the one in its way.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), there AS MATERIALIZED (
    SELECT o.id FROM leasequeue_bulkoperation o
    WHERE o.state IN ('pending', 'running', 'paused') AND o.kind = %(kind)s::text
        AND (o.queue IS NULL OR %(queue)s::text IS NULL OR o.queue = %(queue)s::text)
        AND (o.project IS NULL OR %(project)s::text IS NULL OR o.project = %(project)s::text)
    ORDER BY o.id LIMIT 1
), new AS (
    INSERT INTO leasequeue_bulkoperation (kind, state, project, queue, filters, seqs, frozen_at, target, rate,
        jitter_ms, reason, from_step, user_id, username, expected, expected_capped, looked_at, done, conflicts,
        conflict_counts, conflict_sample, created_at, changed_at, error)
    SELECT %(kind)s::text, 'pending', %(project)s::text, %(queue)s::text, %(filters)s::text, %(seqs)s::bigint[],
        LEAST(%(frozen_at)s::timestamptz, clock.now), %(target)s::text, %(rate)s::float8, %(jitter_ms)s::int,
        %(reason)s::text, %(from_step)s::text, %(user_id)s::text, %(username)s::text, %(expected)s::bigint,
        %(expected_capped)s::bool, 0, 0, 0, '{}', '[]', clock.now, clock.now, ''
    FROM clock WHERE NOT EXISTS (SELECT FROM there)
    RETURNING id
)
SELECT (SELECT id FROM new), (SELECT id FROM there)

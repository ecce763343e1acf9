-- Purpose: how many dead letters some queues have (of one group, of a time), up to a cap; no row is fetched.
-- Parameters: queues (ids), fingerprint, since, until (null: any), cap.
-- Index: leasequeue_job_died, or with a fingerprint leasequeue_job_dead (compared and ordered as in dead_groups).
-- Returns: the count, at most cap + 1.
SELECT count(*) FROM (
    SELECT FROM (
        SELECT FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
            SELECT FROM leasequeue_job j WHERE j.queue_id = q.id AND j.dead_at IS NOT NULL
                AND j.dead_at >= COALESCE(%(since)s::timestamptz, '-infinity')
                AND j.dead_at <= COALESCE(%(until)s::timestamptz, 'infinity')
            ORDER BY j.dead_at DESC LIMIT %(cap)s::int + 1) j
        WHERE %(fingerprint)s::text IS NULL) a
    UNION ALL
    SELECT FROM (
        SELECT FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
            SELECT FROM leasequeue_job j WHERE j.queue_id = q.id AND j.dead_at IS NOT NULL
                AND (j.fingerprint, j.dead_at) >= (%(fingerprint)s::text, COALESCE(%(since)s::timestamptz, '-infinity'))
                AND (j.fingerprint, j.dead_at) <= (%(fingerprint)s::text, COALESCE(%(until)s::timestamptz, 'infinity'))
            ORDER BY j.fingerprint, j.dead_at LIMIT %(cap)s::int + 1) j
        WHERE %(fingerprint)s::text IS NOT NULL) b
    LIMIT %(cap)s::int + 1) x

-- Purpose: jobs of a task that workers gave back unstarted are due now. Locked ones are just becoming due.
-- Parameters: project, name, after (a job's number, exclusive), size (jobs that are looked at), now.
-- Index: leasequeue_delayed_put_off, leasequeue_delayed_pkey, leasequeue_job_pkey, leasequeue_queue_pkey.
-- Pages: 40 + 20 a row
WITH seen AS MATERIALIZED (
    SELECT d.seq, d.queue_id FROM leasequeue_delayed d WHERE d.flags >= {PUT_OFF} AND d.seq > %(after)s::bigint
    ORDER BY d.seq LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), due AS (
    UPDATE leasequeue_delayed d SET available_at = LEAST(d.available_at, {now()}), flags = d.flags & ~{PUT_OFF}
    WHERE d.available_at + interval '0' < {HELD} AND d.seq = ANY (ARRAY(
        SELECT seen.seq FROM seen
        CROSS JOIN LATERAL (SELECT j.name FROM leasequeue_job j WHERE j.seq = seen.seq OFFSET 0) j
        CROSS JOIN LATERAL (SELECT q.project FROM leasequeue_queue q WHERE q.id = seen.queue_id OFFSET 0) q
        WHERE j.name = %(name)s::text AND q.project = %(project)s::text))
    RETURNING d.queue_id
)
SELECT (SELECT max(seq) FROM seen) AS last, (SELECT array_agg(DISTINCT queue_id) FROM due) AS queues

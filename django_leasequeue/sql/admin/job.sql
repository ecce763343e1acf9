-- Purpose: one live job with all that its page shows, of any project; bodies by their size only, JSON up to a size.
-- Parameters: seq, bytes (longer JSON is left out: its size is told).
-- Index: leasequeue_job_pkey and one entry of each place; of a leased job the live claims of its queue.
-- Pages: 60
-- Returns: the columns of admin.reading.JobFacts.
SELECT j.seq, j.queue_id, q.project, q.name, j.state::int, j.key, j.name, j.tag, j.origin, j.deliveries,
    COALESCE(j.max_deliveries, q.max_deliveries), j.node, j.claim, j.created_at, j.first_claimed_at, j.claimed_at, j.deadline,
    j.available_at, j.expires_at, j.dead_at, NULL::timestamptz, j.rank::int, j.source_queue, j.source_seq, s.name, s.project,
    s.id, j.error_type, j.error, j.fingerprint, octet_length(j.data::text), octet_length(j.meta::text),
    octet_length(j.body), octet_length(j.progress::text), NULL::int, NULL::int,
    CASE WHEN octet_length(j.data::text) <= %(bytes)s::int THEN j.data::text END,
    CASE WHEN octet_length(j.meta::text) <= %(bytes)s::int THEN j.meta::text END,
    CASE WHEN octet_length(j.progress::text) <= %(bytes)s::int THEN j.progress::text END, NULL::text,
    leasequeue_errors(j.seq)::text
FROM leasequeue_livejob j LEFT JOIN leasequeue_queue q ON q.id = j.queue_id
LEFT JOIN leasequeue_queue s ON s.id = j.source_queue
WHERE j.seq = %(seq)s::bigint

-- Purpose: the remembered end of one job, of any project, with all that its page shows; bodies by their size only, JSON up to
--   a size.
-- Parameters: seq, bytes (longer JSON is left out: its size is told).
-- Index: leasequeue_jobresult_pkey, leasequeue_job_pkey, leasequeue_attempt_job.
-- Pages: 40
-- Returns: the columns of admin.reading.JobFacts; the state is that of the result + 10.
SELECT r.seq, r.queue_id, q.project, q.name, r.state::int + 10, j.key, j.name, j.tag, j.origin, r.deliveries,
    COALESCE(j.max_deliveries, q.max_deliveries), r.node, r.claim, j.created_at, COALESCE(j.first_claimed_at, r.claimed_at),
    r.claimed_at, NULL::timestamptz, NULL::timestamptz, r.expires_at, NULL::timestamptz, r.finished_at, j.rank::int,
    j.source_queue, j.source_seq, s.name, s.project, s.id, r.error_type, r.error, r.fingerprint, octet_length(j.data::text),
    octet_length(j.meta::text), octet_length(j.body), octet_length(j.progress::text), octet_length(r.result::text),
    octet_length(r.result_body), CASE WHEN octet_length(j.data::text) <= %(bytes)s::int THEN j.data::text END,
    CASE WHEN octet_length(j.meta::text) <= %(bytes)s::int THEN j.meta::text END,
    CASE WHEN octet_length(j.progress::text) <= %(bytes)s::int THEN j.progress::text END,
    CASE WHEN octet_length(r.result::text) <= %(bytes)s::int THEN r.result::text END, leasequeue_errors(r.seq)::text
FROM leasequeue_jobresult r JOIN leasequeue_job j ON j.seq = r.seq
LEFT JOIN leasequeue_queue q ON q.id = r.queue_id LEFT JOIN leasequeue_queue s ON s.id = j.source_queue
WHERE r.seq = %(seq)s::bigint AND j.seq = %(seq)s::bigint

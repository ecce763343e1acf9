-- Purpose: the remembered end of one job, of any project, with all that its page shows; bodies by their size only, JSON up to
--   a size.
-- Parameters: seq, bytes (longer JSON is left out: its size is told).
-- Index: leasequeue_jobresult_pkey.
-- Returns: the columns of admin.reading.JobFacts; the state is that of the result + 10.
SELECT r.seq, r.queue_id, q.project, q.name, r.state::int + 10, r.key, r.name, r.tag, NULL::text, r.deliveries,
    q.max_deliveries, r.node, r.claim, r.created_at, r.first_claimed_at, r.claimed_at, NULL::timestamptz,
    NULL::timestamptz, r.expires_at, NULL::timestamptz, r.finished_at, r.rank::int, NULL::bigint, NULL::bigint, NULL::text,
    NULL::text, NULL::bigint, r.error_type, r.error, r.fingerprint, octet_length(r.data::text),
    octet_length(r.meta::text), octet_length(r.body), octet_length(r.progress::text), octet_length(r.result::text),
    octet_length(r.result_body), CASE WHEN octet_length(r.data::text) <= %(bytes)s::int THEN r.data::text END,
    CASE WHEN octet_length(r.meta::text) <= %(bytes)s::int THEN r.meta::text END,
    CASE WHEN octet_length(r.progress::text) <= %(bytes)s::int THEN r.progress::text END,
    CASE WHEN octet_length(r.result::text) <= %(bytes)s::int THEN r.result::text END, r.errors::text
FROM leasequeue_jobresult r LEFT JOIN leasequeue_queue q ON q.id = r.queue_id
WHERE r.seq = %(seq)s::bigint

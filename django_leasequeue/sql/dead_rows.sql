-- Purpose: dead letters as lists and exports show them, in the order given.
-- Parameters: seqs, payload (with data, meta and errors).
-- Index: leasequeue_job_pkey, leasequeue_queue_pkey.
-- Returns: the columns of engine.triage.DeadRow.
SELECT j.seq, j.queue_id, q.project, q.name, j.state, j.name, j.key, j.tag,
    CASE WHEN j.source_queue IS NULL THEN j.deliveries
        ELSE COALESCE((j.meta -> '$dead_letter_deliveries')::text::int, j.deliveries) END,
    j.error_type, CASE WHEN %(payload)s::bool THEN j.error ELSE left(j.error, 300) END, j.fingerprint, j.dead_at,
    j.created_at, h.name, j.source_seq, CASE WHEN %(payload)s::bool THEN j.data::text END,
    CASE WHEN %(payload)s::bool THEN j.meta::text END, CASE WHEN %(payload)s::bool THEN j.errors::text END
FROM unnest(%(seqs)s::bigint[]) WITH ORDINALITY AS u(seq, ord)
CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq AND j.dead_at IS NOT NULL LIMIT 1) j
CROSS JOIN LATERAL (SELECT q.project, q.name FROM leasequeue_queue q WHERE q.id = j.queue_id LIMIT 1) q
LEFT JOIN LATERAL (SELECT h.name FROM leasequeue_queue h WHERE h.id = j.source_queue LIMIT 1) h ON true
ORDER BY u.ord

-- Purpose: live jobs and records by number, in the order asked, with as many payloads as fit a number of bytes.
-- Parameters: project, queue (null: any), seqs, states (smallint[]; null: any), payload (with data, meta, body), bytes.
-- Index: leasequeue_job_pkey.
-- Returns: bytes of the payloads up to and with this row, whether they are in the answer (the first always is), then the
--   columns of engine.read.JobRow.
WITH i AS MATERIALIZED (
    SELECT u.seq, u.ord FROM unnest(%(seqs)s::bigint[]) WITH ORDINALITY AS u(seq, ord)
), j AS MATERIALIZED (
    SELECT q.name AS queue, j.*, row_number() OVER (ORDER BY i.ord) AS ord, sum(CASE WHEN %(payload)s::bool THEN COALESCE(octet_length(j.data::text), 0)
        + COALESCE(octet_length(j.meta::text), 0) + COALESCE(octet_length(j.body), 0) ELSE 0 END)
        OVER (ORDER BY i.ord ROWS UNBOUNDED PRECEDING) AS total
    FROM leasequeue_job j JOIN i ON i.seq = j.seq JOIN leasequeue_queue q ON q.id = j.queue_id
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND q.project = %(project)s
        AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (%(states)s::smallint[] IS NULL OR j.state = ANY (%(states)s::smallint[]))
)
SELECT j.total::bigint, w.fits, j.seq, j.queue_id, j.queue, j.state, j.rank, j.position, j.created_at, j.available_at,
    j.expires_at, j.key, j.name, j.tag, j.origin, j.reply_to, j.deliveries, j.max_deliveries, j.node, j.claim, j.deadline,
    j.first_claimed_at, j.claimed_at, j.dead_at, j.source_queue, j.source_seq, j.error_type, j.error, j.fingerprint,
    CASE WHEN w.shown THEN j.data::text END, CASE WHEN w.shown THEN j.meta::text END, CASE WHEN w.shown THEN j.body END,
    j.progress::text, j.errors::text
FROM j CROSS JOIN LATERAL (
    SELECT j.total <= %(bytes)s::bigint OR j.ord = 1 AS fits,
        %(payload)s::bool AND (j.total <= %(bytes)s::bigint OR j.ord = 1) AS shown) w
ORDER BY j.ord

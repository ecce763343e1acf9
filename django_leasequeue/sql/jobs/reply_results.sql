-- Purpose: the small results of completed jobs, by number, for callers after a notification; job_status.sql for others.
-- Parameters: seqs, inline (bytes as stored: a larger result stays behind), now.
-- Index: leasequeue_jobresult_pkey, leasequeue_job_pkey.
-- Pages: 20 + 12 a row
-- Returns: number, time of the enqueue, JSON, bytes; no row for a job that is not completed, or whose result is larger
--   or over.
SELECT r.seq, j.created_at, r.result::text, r.result_body FROM leasequeue_jobresult r
JOIN LATERAL (SELECT j.created_at FROM leasequeue_job j WHERE j.seq = r.seq OFFSET 0) j ON true
WHERE r.seq = ANY (%(seqs)s::bigint[]) AND r.state = {result.COMPLETED} AND r.expires_at > {now()}
    AND (pg_column_size(r.result) > %(inline)s::int) IS NOT TRUE
        AND (octet_length(r.result_body) > %(inline)s::int) IS NOT TRUE

-- Purpose: change how long the end of a job is remembered: from now on where it has ended, from its end on while it lives.
-- Parameters: project, queue, seq or key (the other null), ttl (ms), now.
-- Index: leasequeue_job_pkey, leasequeue_job_key, leasequeue_jobresult_pkey, leasequeue_result_key.
-- Returns: seq and whether it has ended (a live or dead job first); no row when nothing is known of it.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), live AS (
    UPDATE leasequeue_job j SET result_ttl_ms = %(ttl)s::bigint,
        expires_at = CASE WHEN j.state = 3 THEN t.now + %(ttl)s::bigint * interval '1 ms' ELSE j.expires_at END
    FROM q, t
    WHERE j.queue_id = q.id AND j.state <> 4 AND NOT (j.state = 3 AND j.expires_at IS NOT NULL AND j.expires_at <= t.now)
        AND j.seq = ANY (ARRAY(SELECT %(seq)s::bigint UNION ALL
            SELECT k.seq FROM leasequeue_job k, q WHERE k.key = %(key)s::text AND k.queue_id = q.id))
    RETURNING j.seq, j.state = 3 AS ended
), ended AS (
    UPDATE leasequeue_jobresult r SET expires_at = t.now + %(ttl)s::bigint * interval '1 ms'
    FROM q, t
    WHERE r.queue_id = q.id AND r.expires_at > t.now AND NOT EXISTS (SELECT FROM live)
        AND r.seq = ANY (ARRAY(SELECT %(seq)s::bigint UNION ALL
            SELECT k.seq FROM leasequeue_jobresult k, q WHERE k.key = %(key)s::text AND k.queue_id = q.id))
    RETURNING r.seq
)
SELECT seq, ended FROM live UNION ALL SELECT seq, true FROM ended

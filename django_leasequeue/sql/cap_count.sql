-- Purpose: count the live records and bytes of a topic with a cap, and remember them. The writer holds cap_lock.
-- Parameters: queue (id).
-- Index: leasequeue_job_ready from the floor on, leasequeue_job_delayed, leasequeue_job_dead, leasequeue_job_record,
--   leasequeue_claim_deadline, leasequeue_job_pkey: as many entries as the topic has records.
-- Returns: records, bytes.
WITH live AS (
    SELECT j.data, j.meta, j.body FROM leasequeue_queuefloor f JOIN leasequeue_job j
        ON j.queue_id = f.queue_id AND j.rank = f.rank AND j.state = 0 AND j.position >= f.value
    WHERE f.queue_id = %(queue)s::bigint AND f.kind = 0
    UNION ALL
    SELECT j.data, j.meta, j.body FROM leasequeue_job j WHERE j.queue_id = %(queue)s::bigint AND j.state = 1
    UNION ALL
    SELECT j.data, j.meta, j.body FROM leasequeue_job j
    WHERE j.queue_id = %(queue)s::bigint AND j.dead_at IS NOT NULL AND j.state = 3
    UNION ALL
    SELECT j.data, j.meta, j.body FROM leasequeue_job j WHERE j.queue_id = %(queue)s::bigint AND j.state = 4
    UNION ALL
    SELECT j.data, j.meta, j.body FROM leasequeue_job j
    WHERE j.seq = ANY (ARRAY(SELECT unnest(c.seqs) FROM leasequeue_claim c WHERE c.queue_id = %(queue)s::bigint))
        AND j.queue_id = %(queue)s::bigint AND j.state = 2
), n AS MATERIALIZED (
    SELECT count(*) AS records, COALESCE(sum(COALESCE(octet_length(data::text), 0) + COALESCE(octet_length(meta::text), 0)
        + COALESCE(octet_length(body), 0)), 0)::bigint AS bytes
    FROM live
)
UPDATE leasequeue_topicstate s SET records = n.records, bytes = n.bytes FROM n WHERE s.queue_id = %(queue)s::bigint
RETURNING s.records, s.bytes

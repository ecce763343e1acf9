-- Purpose: count the live records and bytes of a topic with a cap, and store them. The writer holds cap_lock.
-- Parameters: queue (id).
-- Index: leasequeue_ready_pkey, the fresh lane from the floor on; leasequeue_delayed_due, leasequeue_dead_died,
--   leasequeue_record_pkey, leasequeue_claim_deadline, leasequeue_job_pkey: as many entries as the topic has records.
-- Pages: 20 + 0.1 a row
WITH live AS MATERIALIZED (
    {ready_of(OFFSET 0)}
    UNION ALL
    SELECT d.seq FROM leasequeue_delayed d WHERE d.queue_id = %(queue)s::bigint
    UNION ALL
    SELECT x.seq FROM leasequeue_deadletter x WHERE x.queue_id = %(queue)s::bigint AND x.in_place
    UNION ALL
    SELECT o.seq FROM leasequeue_record o WHERE o.queue_id = %(queue)s::bigint
    UNION ALL
    SELECT u.seq FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
    WHERE c.queue_id = %(queue)s::bigint
), counted AS MATERIALIZED (
    SELECT count(*) AS records, COALESCE(sum({bytes(j)}), 0)::bigint AS bytes
    FROM leasequeue_job j WHERE j.seq = ANY (ARRAY(SELECT seq FROM live))
)
UPDATE leasequeue_topicstate s SET records = counted.records, bytes = counted.bytes FROM counted
WHERE s.queue_id = %(queue)s::bigint
RETURNING s.records, s.bytes

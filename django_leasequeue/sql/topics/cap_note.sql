-- Purpose: add a write to the figures of a topic with a cap. The writer holds cap_lock.
-- Parameters: queue (id), seqs (the new records).
-- Index: leasequeue_queue_pkey, leasequeue_topicstate_pkey, leasequeue_job_pkey.
-- Pages: 20 + 0.2 a row
-- Returns: name, type, cap_records, cap_bytes, discard; records and bytes, at most so many are live (null: count them).
WITH written AS MATERIALIZED (
    SELECT count(*) AS records, COALESCE(sum({bytes(j)}), 0)::bigint AS bytes
    FROM leasequeue_job j WHERE j.seq = ANY (%(seqs)s::bigint[])
), state AS (
    INSERT INTO leasequeue_topicstate AS s (queue_id) SELECT %(queue)s::bigint FROM written
    ON CONFLICT (queue_id) DO UPDATE SET
        records = s.records + (SELECT records FROM written), bytes = s.bytes + (SELECT bytes FROM written)
    RETURNING s.records, s.bytes
)
SELECT q.name, q.type, q.cap_records, q.cap_bytes, q.discard, state.records, state.bytes
FROM state, leasequeue_queue q WHERE q.id = %(queue)s::bigint

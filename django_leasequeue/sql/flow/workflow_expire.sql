-- Purpose: forget workflows that ended long ago; their jobs that never started go with them.
-- Parameters: size, now.
-- Index: leasequeue_workflow_expires, leasequeue_member_workflow, leasequeue_delayed_pkey.
-- Pages: 20 + 60 a row
-- Returns: queue id, the numbers of the jobs to remove; one row with nulls for workflows without.
WITH expired AS MATERIALIZED (
    SELECT id FROM leasequeue_workflow
    WHERE expires_at IS NOT NULL AND expires_at <= {now()}
    ORDER BY expires_at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), members AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(
        SELECT m.seq FROM expired CROSS JOIN LATERAL (SELECT m.seq FROM leasequeue_member m
            WHERE m.workflow = expired.id OFFSET 0) m))
    RETURNING seq, queue_id
), gone AS (
    DELETE FROM leasequeue_workflow WHERE id = ANY (ARRAY(SELECT id FROM expired)) RETURNING id
)
SELECT members.queue_id, array_agg(members.seq), (SELECT count(*) FROM gone)
FROM members CROSS JOIN LATERAL (SELECT FROM leasequeue_delayed d WHERE d.seq = members.seq OFFSET 0) d
GROUP BY members.queue_id

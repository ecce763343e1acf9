-- Purpose: the job of a node has another number now: the node has it too, and so have those before and after it. The
--   caller holds its workflow (flow_lock.sql). The lock of the delayed job keeps others from moving it or taking it out
--   while its member is not there yet.
-- Parameters: old, new (numbers).
-- Index: leasequeue_delayed_pkey, leasequeue_job_pkey, leasequeue_member_pkey, leasequeue_workflow_pkey.
-- Pages: 60
-- Returns: the new number; no row if there is no such node.
WITH delayed AS MATERIALIZED (
    SELECT seq FROM leasequeue_delayed WHERE seq = %(new)s::bigint FOR NO KEY UPDATE
), moved AS (
    UPDATE leasequeue_member m SET seq = %(new)s::bigint, taken = false, waits = false,
        queue_id = COALESCE((SELECT j.queue_id FROM leasequeue_job j WHERE j.seq = %(new)s::bigint), m.queue_id),
        rank = COALESCE((SELECT j.rank FROM leasequeue_job j WHERE j.seq = %(new)s::bigint), m.rank)
    WHERE m.seq = %(old)s::bigint AND (SELECT count(*) FROM delayed) >= 0 RETURNING m.*
), before AS (
    UPDATE leasequeue_member p SET children = array_replace(p.children, %(old)s::bigint, %(new)s::bigint)
    WHERE p.seq = ANY (ARRAY(SELECT unnest(parents) FROM moved))
), after AS (
    UPDATE leasequeue_member c SET parents = array_replace(c.parents, %(old)s::bigint, %(new)s::bigint)
    WHERE c.seq = ANY (ARRAY(SELECT unnest(children) FROM moved))
)
SELECT seq FROM moved

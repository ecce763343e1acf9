-- Purpose: the newest 20 failed attempts of a job, oldest first, as a JSON array; null without any. (Nothing is ordered
--   by id alone: a planner who thinks the table empty would walk down the primary key.)
-- Index: leasequeue_attempt_job.
CREATE FUNCTION leasequeue_errors(job bigint) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_agg(json_build_object('at', a.at, 'node', a.node, 'deliveries', a.delivery, 'type', a.error_type,
        'message', a.message, 'traceback', a.traceback) ORDER BY a.id)
    FROM (SELECT * FROM leasequeue_attempt WHERE seq = job ORDER BY id + 0 DESC LIMIT 20) a
$$;

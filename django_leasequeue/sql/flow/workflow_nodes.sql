-- Purpose: the nodes of a workflow, in the order of their numbers, with where they stand and how they ended.
-- Parameters: workflow (id), after (number of the last one of the page before; 0: the first), size, results (with
--   results and whole errors; else without results, and errors are cut).
-- Index: leasequeue_member_workflow, leasequeue_job_pkey, leasequeue_queue_pkey, leasequeue_jobresult_pkey,
--   leasequeue_deadletter_pkey, leasequeue_delayed_pkey, leasequeue_ready_pkey.
-- Pages: 20 + 40 a row
SELECT m.seq, m.place, m.label, m.task, q.name AS queue, j.key, m.state::int AS member, m.parents,
    r.state IS NOT NULL AS ended, COALESCE(w.held, false) AS held,
    w.held IS NOT NULL AS delayed, EXISTS (SELECT FROM leasequeue_ready_at(m.queue_id, m.rank,
        COALESCE(j.position, m.seq)) a
        WHERE a.seq = m.seq) AS ready,
    COALESCE(r.error_type, d.error_type) AS error_type, CASE WHEN %(results)s::bool THEN COALESCE(r.error, d.error)
        ELSE left(COALESCE(r.error, d.error), 300) END AS error,
    CASE WHEN %(results)s::bool THEN r.result::text END AS result_json, m.for_failure
-- The workflow stands in the order: sorted by number alone, a planner may walk all members by their primary key.
FROM (SELECT * FROM leasequeue_member m
    WHERE (m.workflow, m.seq) > (%(workflow)s::bigint, %(after)s::bigint) AND m.workflow <= %(workflow)s::bigint
    ORDER BY m.workflow, m.seq LIMIT %(size)s::int) m
LEFT JOIN LATERAL (SELECT j.key, j.position FROM leasequeue_job j WHERE j.seq = m.seq OFFSET 0) j ON true
LEFT JOIN LATERAL (SELECT q.name FROM leasequeue_queue q WHERE q.id = m.queue_id OFFSET 0) q ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_jobresult r WHERE r.seq = m.seq OFFSET 0) r ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = m.seq AND d.in_place OFFSET 0) d ON true
LEFT JOIN LATERAL (SELECT w.available_at >= {HELD} AS held FROM leasequeue_delayed w
    WHERE w.seq = m.seq OFFSET 0) w ON true
ORDER BY m.seq

-- Purpose: what no claim may be: without jobs, with a job twice, with arrays of different lengths, with the name of other jobs.
-- Parameters: size.
-- Index: whole tables, hashed: an operator's statement.
-- Pages: whole tables, as it compares all of them.
-- Host: whole tables, as verify_snapshot.sql set the planner.
-- Returns: differences in all, difference, lowest seq (0: none), queue id, the claim (json), what was found (json).
WITH u AS MATERIALIZED (
    SELECT c.token, c.part, count(u.seq) AS jobs, count(DISTINCT u.seq) AS different, min(u.seq) AS seq,
        min(u.seq) FILTER (WHERE j.seq IS NOT NULL AND j.name IS DISTINCT FROM c.name) AS other
    FROM leasequeue_claim c LEFT JOIN LATERAL unnest(c.seqs) AS u(seq) ON true LEFT JOIN leasequeue_job j ON j.seq = u.seq
    GROUP BY c.token, c.part
), d AS (
    SELECT CASE
            WHEN u.jobs = 0 THEN 'empty_claim'
            WHEN cardinality(c.deliveries) <> u.jobs THEN 'other_length'
            WHEN u.different < u.jobs THEN 'twice_in_claim'
            WHEN c.flags & 16 = 0 AND u.other IS NOT NULL THEN 'other_name' END AS difference,
        COALESCE(u.other, u.seq, 0) AS seq, c.queue_id, c.token, c.part, c.node, c.name, u.jobs,
        cardinality(c.deliveries) AS deliveries
    FROM leasequeue_claim c JOIN u ON u.token = c.token AND u.part = c.part
)
SELECT count(*) OVER (), d.difference, d.seq, d.queue_id,
    jsonb_strip_nulls(jsonb_build_object('claim', d.token, 'part', d.part, 'node', d.node, 'name', d.name))::text,
    jsonb_strip_nulls(jsonb_build_object('jobs', d.jobs, 'deliveries', d.deliveries))::text
FROM d WHERE d.difference IS NOT NULL ORDER BY d.queue_id, d.token, d.part LIMIT %(size)s::int

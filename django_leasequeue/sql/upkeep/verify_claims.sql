-- Purpose: invalid claims: without jobs, with a job twice, with arrays of different lengths, with the name of
--   other jobs.
-- Parameters: size.
-- Index: whole tables, hashed: an operator's statement.
-- Pages: whole tables, as it compares all of them.
-- Returns: differences in all, difference, lowest seq (0: none), queue id, the claim (json), what was found (json).
{keeps_host_settings(verify_snapshot.sql has set the planner)}
WITH counted AS MATERIALIZED (
    SELECT c.token, c.part, count(u.seq) AS jobs, count(DISTINCT u.seq) AS different, min(u.seq) AS seq,
        min(u.seq) FILTER (WHERE j.seq IS NOT NULL AND j.name IS DISTINCT FROM c.name) AS other
    FROM leasequeue_claim c LEFT JOIN LATERAL unnest(c.seqs) AS u(seq) ON true
    LEFT JOIN leasequeue_job j ON j.seq = u.seq
    GROUP BY c.token, c.part
), differences AS (
    SELECT CASE
            WHEN counted.jobs = 0 THEN 'empty_claim'
            WHEN cardinality(c.deliveries) <> counted.jobs THEN 'other_length'
            WHEN counted.different < counted.jobs THEN 'twice_in_claim'
            WHEN c.flags & {MIXED} = 0 AND counted.other IS NOT NULL THEN 'other_name' END AS difference,
        COALESCE(counted.other, counted.seq, 0) AS seq, c.queue_id, c.token, c.part, c.node, c.name, counted.jobs,
        cardinality(c.deliveries) AS deliveries
    FROM leasequeue_claim c JOIN counted ON counted.token = c.token AND counted.part = c.part
)
SELECT count(*) OVER (), difference, seq, queue_id,
    jsonb_strip_nulls(jsonb_build_object('claim', token, 'part', part, 'node', node, 'name', name))::text,
    jsonb_strip_nulls(jsonb_build_object('jobs', jobs, 'deliveries', deliveries))::text
FROM differences WHERE difference IS NOT NULL ORDER BY differences.queue_id, differences.token, differences.part
LIMIT %(size)s::int

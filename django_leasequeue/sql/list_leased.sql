-- Purpose: leased jobs of a queue, those whose claim ends first in front, a page at a time. There is no index of leased
--   jobs: their claims are read, at most 100 of them, so a page may be short although there is more.
-- Parameters: project, queue, deadline (of the claim, microseconds), claim and seq (of the last job seen; null: from the
--   start), size.
-- Index: leasequeue_claim_deadline from the floor on, leasequeue_job_pkey.
-- Returns: first the last claim read (null, deadline in microseconds, claim, 9223372036854775807) or nulls if none is left
--   behind it; then seq, deadline, claim, seq.
WITH q AS MATERIALIZED (
    SELECT q.id, 'epoch'::timestamptz + %(deadline)s::bigint * interval '1 us' AS since,
        'epoch'::timestamptz + COALESCE(f.value, 0) * interval '1 us' AS floor
    FROM leasequeue_queue q LEFT JOIN leasequeue_queuefloor f ON f.queue_id = q.id AND f.kind = 2 AND f.rank = 0
    WHERE q.project = %(project)s AND q.name = %(queue)s
), c AS MATERIALIZED (
    SELECT c.* FROM q CROSS JOIN LATERAL (
        SELECT c.id, c.deadline, c.seqs FROM leasequeue_claim c
        WHERE c.queue_id = q.id AND c.deadline >= GREATEST(q.floor, q.since)
            AND (q.since IS NULL OR (c.deadline, c.id) >= (q.since, %(claim)s::bigint))
        ORDER BY c.deadline, c.id LIMIT 100) c
), u AS MATERIALIZED (
    SELECT c.id, c.deadline, s.seq FROM c CROSS JOIN LATERAL unnest(c.seqs) AS s(seq), q
    WHERE q.since IS NULL OR (c.deadline, c.id, s.seq) > (q.since, %(claim)s::bigint, %(seq)s::bigint)
), h AS MATERIALIZED (
    SELECT j.seq, j.claim FROM leasequeue_job j WHERE j.seq = ANY (ARRAY(SELECT seq FROM u)) AND j.state = 2
), l AS (
    SELECT u.seq, (extract(epoch FROM u.deadline) * 1000000)::bigint AS deadline, u.id
    FROM u JOIN h ON h.seq = u.seq AND h.claim = u.id ORDER BY u.deadline, u.id, u.seq LIMIT %(size)s::int
)
SELECT seq, deadline, id, last FROM (
    SELECT 0 AS part, NULL::bigint AS seq, (extract(epoch FROM c.deadline) * 1000000)::bigint AS deadline, c.id,
        9223372036854775807 AS last
    FROM (SELECT * FROM c ORDER BY deadline DESC, id DESC LIMIT 1) c WHERE (SELECT count(*) FROM c) = 100
    UNION ALL
    SELECT 1, l.seq, l.deadline, l.id, l.seq FROM l
) x ORDER BY part, deadline, id, seq

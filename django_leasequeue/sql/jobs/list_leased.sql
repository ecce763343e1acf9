-- Purpose: leased jobs of a queue, those whose claim ends first in front, a page at a time.
-- Parameters: project, queue, deadline (of the claim, microseconds), claim (token), part and seq (of the last job seen; null:
--   from the start), size.
-- Index: leasequeue_claim_deadline from the floor on: as many claims as hold a page. It is read twice: where the page ends is
--   found in the order of the index alone, so that no planner sorts all claims.
-- Pages: 20 + 0.2 a row
-- Returns: seq, deadline in microseconds, token, part, seq.
WITH q AS MATERIALIZED (
    SELECT q.id, 'epoch'::timestamptz + interval '1 us' * GREATEST(%(deadline)s::bigint, {floor(q.id, 2, 0)}) AS since,
        'epoch'::timestamptz + %(deadline)s::bigint * interval '1 us' AS at
    FROM leasequeue_queue q WHERE q.project = %(project)s AND q.name = %(queue)s
), c AS MATERIALIZED (
    SELECT c.*, sum(cardinality(c.seqs)) OVER w - cardinality(c.seqs) AS before, row_number() OVER w AS n
    FROM q CROSS JOIN LATERAL (
        SELECT c.token, c.part, c.deadline, c.seqs, q.at FROM leasequeue_claim c
        WHERE c.queue_id = q.id AND c.deadline >= q.since
            AND (q.at IS NULL OR (c.deadline, c.token, c.part) >= (q.at, %(claim)s::bigint, %(part)s::smallint))
            AND c.deadline <= COALESCE((
                SELECT e.deadline FROM leasequeue_claim e WHERE e.queue_id = q.id AND e.deadline >= q.since
                    AND (q.at IS NULL OR (e.deadline, e.token, e.part) >= (q.at, %(claim)s::bigint, %(part)s::smallint))
                ORDER BY e.deadline LIMIT 1 OFFSET %(size)s::int), 'infinity')
        ORDER BY c.deadline, c.token, c.part LIMIT %(size)s::int + 1) c
    WINDOW w AS (ORDER BY c.deadline, c.token, c.part ROWS UNBOUNDED PRECEDING)
)
SELECT u.seq, (extract(epoch FROM c.deadline) * 1000000)::bigint, c.token, c.part, u.seq
FROM c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
WHERE (c.n <= 2 OR c.before - (SELECT cardinality(f.seqs) FROM c f WHERE f.n = 1) < %(size)s::int)
    AND (c.at IS NULL OR (c.deadline, c.token, c.part, u.seq) > (c.at, %(claim)s::bigint, %(part)s::smallint, %(seq)s::bigint))
ORDER BY c.deadline, c.token, c.part, u.seq LIMIT %(size)s::int

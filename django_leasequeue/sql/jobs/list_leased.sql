-- Purpose: leased jobs of a queue, the first deadline first, a page at a time.
-- Parameters: project, queue, deadline (of the claim, microseconds), claim (token), part and seq (of the last job seen;
--   null: from the start), size.
-- Index: leasequeue_claim_deadline from the floor on: as many claims as hold a page. It is read twice: where the page
--   ends is found in the order of the index alone, so that no planner sorts all claims.
-- Pages: 20 + 0.2 a row
WITH queue AS MATERIALIZED (
    SELECT q.id, 'epoch'::timestamptz + interval '1 us' * GREATEST(%(deadline)s::bigint,
        {floor(q.id, {floor.CLAIM}, 0)}) AS since,
        'epoch'::timestamptz + %(deadline)s::bigint * interval '1 us' AS at
    FROM leasequeue_queue q WHERE q.project = %(project)s AND q.name = %(queue)s
), claims AS MATERIALIZED (
    SELECT c.*, sum(cardinality(c.seqs)) OVER w - cardinality(c.seqs) AS before, row_number() OVER w AS n
    FROM queue CROSS JOIN LATERAL (
        SELECT c.token, c.part, c.deadline, c.seqs, queue.at FROM leasequeue_claim c
        WHERE c.queue_id = queue.id AND c.deadline >= queue.since
            AND (queue.at IS NULL OR (c.deadline, c.token, c.part) >= (queue.at, %(claim)s::bigint, %(part)s::bigint))
            AND c.deadline <= COALESCE((
                SELECT e.deadline FROM leasequeue_claim e WHERE e.queue_id = queue.id AND e.deadline >= queue.since
                    AND (queue.at IS NULL OR (e.deadline, e.token, e.part) >= (queue.at, %(claim)s::bigint,
                        %(part)s::bigint))
                ORDER BY e.deadline LIMIT 1 OFFSET %(size)s::int), 'infinity')
        ORDER BY c.deadline, c.token, c.part LIMIT %(size)s::int + 1) c
    WINDOW w AS (ORDER BY c.deadline, c.token, c.part ROWS UNBOUNDED PRECEDING)
)
SELECT u.seq, (extract(epoch FROM claims.deadline) * 1000000)::bigint, claims.token, claims.part, u.seq
FROM claims CROSS JOIN LATERAL unnest(claims.seqs) AS u(seq)
WHERE (claims.n <= 2 OR claims.before - (SELECT cardinality(f.seqs) FROM claims f WHERE f.n = 1) < %(size)s::int)
    AND (claims.at IS NULL OR (claims.deadline, claims.token, claims.part, u.seq) > (claims.at, %(claim)s::bigint,
        %(part)s::bigint, %(seq)s::bigint))
ORDER BY claims.deadline, claims.token, claims.part, u.seq LIMIT %(size)s::int

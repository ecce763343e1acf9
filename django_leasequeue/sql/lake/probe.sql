-- Purpose: the order of events on evenly spaced pages of one partition of the lease log.
-- Parameters: {table}; pages, step.
-- Index: pages by their number (TID range scan).
-- Pages: whole tables: the pages that are asked for.
-- Returns: txid, id of one row per page looked at; the events (one a job) of the page.
SELECT e.txid, e.id, e.events
FROM generate_series(0, %(pages)s::bigint - 1, %(step)s::bigint) AS p(page), LATERAL (
    SELECT r.txid, r.id, sum(cardinality(r.seqs)) OVER () AS events FROM {table} r
    WHERE r.ctid >= format('(%%s,0)', p.page)::tid AND r.ctid < format('(%%s,0)', p.page + 1)::tid LIMIT 1
) e

-- Purpose: a look at evenly spaced pages of one partition of the lease log: where the order of events stands there.
-- Parameters: {table}; pages, step, xmin (horizon), txid and id (the place after which points are wanted).
-- Index: pages by their number (TID range scan).
-- Returns: txid, id of one event per page looked at.
SELECT e.txid, e.id
FROM generate_series(0, %(pages)s::bigint - 1, %(step)s::bigint) AS p(page), LATERAL (
    SELECT r.txid, r.id FROM {table} r
    WHERE r.ctid >= format('(%%s,0)', p.page)::tid AND r.ctid < format('(%%s,0)', p.page + 1)::tid LIMIT 1
) e
WHERE e.txid < %(xmin)s::bigint AND (e.txid, e.id) > (%(txid)s::bigint, %(id)s::bigint)

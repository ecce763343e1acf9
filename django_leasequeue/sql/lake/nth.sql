-- Purpose: the place of the n-th event after a point.
-- Parameters: txid, id (after), last_txid, last_id (look no further), skip (n - 1).
-- Index: leasequeue_event_txid (BRIN).
-- Returns: txid, id; nothing if there are fewer.
SELECT r.txid, r.id FROM leasequeue_leaseevent r
WHERE r.txid BETWEEN %(txid)s::bigint AND %(last_txid)s::bigint
    AND (r.txid, r.id) > (%(txid)s::bigint, %(id)s::bigint)
    AND (r.txid, r.id) <= (%(last_txid)s::bigint, %(last_id)s::bigint)
ORDER BY r.txid, r.id OFFSET %(skip)s::bigint LIMIT 1

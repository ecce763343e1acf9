-- Purpose: count the events after one point and up to another.
-- Parameters: txid, id (after), last_txid, last_id (up to and with).
-- Index: leasequeue_event_txid (BRIN).
-- Pages: 260
-- Returns: the number: one event a job.
SELECT COALESCE(sum(cardinality(r.seqs)), 0)::bigint FROM leasequeue_leaseevent r
WHERE r.txid BETWEEN %(txid)s::bigint AND %(last_txid)s::bigint
    AND (r.txid, r.id) > (%(txid)s::bigint, %(id)s::bigint)
    AND (r.txid, r.id) <= (%(last_txid)s::bigint, %(last_id)s::bigint)

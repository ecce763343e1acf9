-- Purpose: the point up to which there are at most so many events after another one: of whole rows, and of one row at
--   least.
-- Parameters: txid, id (after), last_txid, last_id (look no further), most.
-- Index: leasequeue_event_txid (BRIN).
-- Pages: 260
-- Returns: txid, id; nothing if there are fewer.
WITH events AS MATERIALIZED (
    SELECT r.txid, r.id, sum(cardinality(r.seqs)) OVER (ORDER BY r.txid, r.id) AS upto,
        row_number() OVER (ORDER BY r.txid, r.id) AS n
    FROM leasequeue_leaseevent r
    WHERE r.txid BETWEEN %(txid)s::bigint AND %(last_txid)s::bigint
        AND (r.txid, r.id) > (%(txid)s::bigint, %(id)s::bigint)
        AND (r.txid, r.id) <= (%(last_txid)s::bigint, %(last_id)s::bigint)
)
SELECT txid, id FROM events WHERE (upto <= %(most)s::bigint OR n = 1)
    AND (SELECT max(upto) FROM events) >= %(most)s::bigint
ORDER BY n DESC LIMIT 1

-- Purpose: whether there is an event after one point and up to another.
-- Parameters: txid, id (after), last_txid, last_id (up to and with).
-- Index: leasequeue_event_txid (BRIN). By itself EXISTS would have the log read from its beginning, in hope of an early
--   hit; what
-- is materialized is planned as if all of it were wanted, and is still read no further than to the first event.
-- Pages: 40
WITH found AS MATERIALIZED (
    SELECT FROM leasequeue_leaseevent r
    WHERE r.txid BETWEEN %(txid)s::bigint AND %(last_txid)s::bigint
        AND (r.txid, r.id) > (%(txid)s::bigint, %(id)s::bigint)
        AND (r.txid, r.id) <= (%(last_txid)s::bigint, %(last_id)s::bigint)
)
SELECT EXISTS (SELECT FROM found)

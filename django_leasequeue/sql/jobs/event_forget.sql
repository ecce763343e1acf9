-- Purpose: remove expired events.
-- Parameters: size, now.
-- Index: leasequeue_emittedevent_expiry.
-- Pages: 40 + 6 a row
WITH gone AS (
    DELETE FROM leasequeue_emittedevent WHERE ctid = ANY (ARRAY(SELECT e.ctid FROM leasequeue_emittedevent e
        WHERE e.expires_at <= (SELECT {now()}) ORDER BY e.expires_at LIMIT %(size)s::int
        FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) FROM gone

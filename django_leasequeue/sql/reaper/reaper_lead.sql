-- Purpose: begin a new term as the leader: if there was none, if the leader has resigned, or if its counter still
--   stands where the caller has seen it stand for too long. The term is a key: this waits for transactions that hold
--   the old one (reaper_fence).
-- Parameters: holder, term and beat (of the silent leader).
-- Index: leasequeue_reaperterm_single_key.
-- Pages: 20
-- Returns: the new term; nothing if another one leads.
WITH first AS (
    INSERT INTO leasequeue_reaperterm (term, single, beat, holder, address, began_at, beat_at, duties)
    SELECT 1, true, 0, %(holder)s::text, COALESCE(host(inet_client_addr()), 'local'), clock_timestamp(),
        clock_timestamp(), '[]'
    WHERE NOT EXISTS (SELECT FROM leasequeue_reaperterm)
    ON CONFLICT (single) DO NOTHING RETURNING term
), following AS (
    UPDATE leasequeue_reaperterm SET term = term + 1, beat = 0, holder = %(holder)s::text,
        address = COALESCE(host(inet_client_addr()), 'local'), began_at = clock_timestamp(),
            beat_at = clock_timestamp(), duties = '[]'
    WHERE holder = '' OR (term, beat) = (%(term)s::bigint, %(beat)s::bigint)
    RETURNING term
)
SELECT term FROM first UNION ALL SELECT term FROM following

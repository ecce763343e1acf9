-- Purpose: the lowest transaction whose events a registered consumer still needs; consumers that did not move for
--   longer than the limit while there was something to read are marked as overtaken and waited for no longer.
-- Parameters: seconds (the limit; null: none).
-- Index: none: a handful of rows.
-- Pages: whole tables: a handful of consumers.
-- Returns: txid (null: none is needed), names of those that were given up now.
WITH lost AS (
    UPDATE leasequeue_lakeconsumer SET overtaken_at = clock_timestamp()
    WHERE overtaken_at IS NULL AND seen_at < clock_timestamp() - %(seconds)s::float8 * interval '1 s'
    RETURNING name
)
SELECT (SELECT min(CASE WHEN event = 9223372036854775807 THEN txid + 1 ELSE txid END) FROM leasequeue_lakeconsumer c
        WHERE c.overtaken_at IS NULL AND NOT EXISTS (SELECT FROM lost WHERE lost.name = c.name)),
    (SELECT array_agg(name) FROM lost)

-- Purpose: mark objects that no job got within a time, and that no open transaction is about to give to one: they are
--   being removed. Those that were marked before come again, from a place on.
-- Parameters: grace (seconds), after (the last id of the part before), size, now.
-- Index: leasequeue_largeobject_seq, leasequeue_largeobject_pkey.
-- Pages: 40 + 32 a row
WITH cutoff AS MATERIALIZED (SELECT {now()} - %(grace)s::float8 * interval '1 second' AS since), old AS MATERIALIZED (
    SELECT o.id FROM (
        SELECT id, created_at FROM leasequeue_largeobject WHERE seq IS NULL ORDER BY seq, id + 0 LIMIT %(size)s::int
        FOR UPDATE SKIP LOCKED) o, cutoff
    WHERE o.created_at < cutoff.since
), marked AS (
    UPDATE leasequeue_largeobject SET seq = 0 WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING id, storage, name
)
SELECT id, storage, name FROM marked
UNION ALL
SELECT o.* FROM (SELECT id, storage, name FROM leasequeue_largeobject WHERE seq = 0 AND id + 0 > %(after)s::bigint
    ORDER BY seq, id + 0 LIMIT %(size)s::int) o

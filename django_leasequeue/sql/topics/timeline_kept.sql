-- Purpose: the records that every failover since a timeline has kept, for readers past lost records.
-- Parameters: timeline (the reader's; null: the last one before the server's), current (the server's timeline).
-- Index: leasequeue_timeline_pkey.
-- Pages: 20
-- Returns: the number up to which every record is kept, the transaction below which every one is; nulls if it is not
--   known.
SELECT min(t.sealed), min(t.horizon) FROM leasequeue_timeline t
WHERE t.timeline < %(current)s::bigint AND t.timeline >= COALESCE(%(timeline)s::bigint,
        (SELECT max(l.timeline) FROM leasequeue_timeline l WHERE l.timeline < %(current)s::bigint))
HAVING bool_or(t.timeline = %(timeline)s::bigint) IS NOT FALSE

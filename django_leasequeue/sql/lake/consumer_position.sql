-- Purpose: the position of a named consumer of the lease log.
-- Parameters: name.
-- Index: the unique index on name.
-- Pages: 30
SELECT txid, event FROM leasequeue_lakeconsumer WHERE name = %(name)s::text

-- Purpose: remove a consumer of the lease log.
-- Parameters: name.
-- Index: the unique index on name.
-- Pages: 30
DELETE FROM leasequeue_lakeconsumer WHERE name = %(name)s::text

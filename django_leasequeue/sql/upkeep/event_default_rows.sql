-- Purpose: count the events in the default partition of the lease log, up to a bound.
-- Parameters: size.
-- Index: none (a part of the table's pages).
-- Pages: 30
SELECT count(*) FROM (SELECT FROM leasequeue_leaseevent_default LIMIT %(size)s::int) x

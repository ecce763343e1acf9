-- Purpose: the columns of the lease log, to make the same table on another server.
-- Returns: name, type, in order.
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = 'leasequeue_leaseevent'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum

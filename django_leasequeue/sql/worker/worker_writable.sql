-- Purpose: whether anything can be written here: not on a standby, nor where a failover has made the server read-only.
-- Pages: none.
-- Returns: true or false.
SELECT NOT current_setting('transaction_read_only')::bool

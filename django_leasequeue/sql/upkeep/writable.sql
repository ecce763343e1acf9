-- Purpose: whether the server accepts writes: not on a standby, nor where a failover has made the server read-only.
SELECT NOT current_setting('transaction_read_only')::bool

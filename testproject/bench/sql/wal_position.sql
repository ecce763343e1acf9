-- Purpose: bytes of write-ahead log written so far, also what is not flushed yet.
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')

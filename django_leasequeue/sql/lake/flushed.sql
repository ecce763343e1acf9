-- Purpose: whether the WAL is on disk up to a position.
-- Parameters: place.
SELECT pg_current_wal_flush_lsn() >= %(place)s::pg_lsn

-- Purpose: up to where the lease log may be read, and which system this is (a restored copy is another one).
-- Parameters: none.
-- Index: none.
-- Returns: the number below which every transaction has ended; the system's identifier.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, (SELECT system_identifier::text FROM pg_control_system())

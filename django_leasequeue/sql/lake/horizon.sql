-- Purpose: the horizon of the lease log, and the system identifier (an upgraded one or a restored copy is
--   another). What is read must be on disk: a transaction that did not wait for it can be lost by a crash, and its
--   number is given out again. The place in the WAL is taken after the snapshot, so that all that ended before the
--   snapshot lies before it.
-- Returns: the number below which every transaction has ended; the system's identifier; its timeline and epoch (on a
--   standby as far as its files tell); the place up to which the WAL has to be flushed (null: it is; so on a standby,
--   which gets nothing else).
SELECT {horizon()}, leasequeue_system(),
    CASE WHEN NOT pg_is_in_recovery() THEN {timeline()}
        ELSE (leasequeue_epoch() << {TIMELINE_BITS}) + GREATEST((SELECT timeline_id FROM pg_control_checkpoint()),
            (SELECT min_recovery_end_timeline FROM pg_control_recovery()))
        END,
    CASE WHEN pg_is_in_recovery() THEN NULL
        WHEN pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn() THEN pg_current_wal_insert_lsn()::text END

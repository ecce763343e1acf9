-- timeline(): the server's timeline, which a promoted standby changes, within the epoch, which a restored database
-- changes.
((leasequeue_epoch() << {TIMELINE_BITS})
    + ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint)

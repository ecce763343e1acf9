-- Purpose: note the progress of the server's timeline: a standby or a dump with this row has everything up to it.
--   Nothing is written while nothing happens, nor where the rows were copied: an epoch has to begin first. Its commit
--   does not wait for the disk: a row that is lost takes nothing with it.
-- Parameters: first (whether it may be the first row), now, autocommit.
-- Index: leasequeue_timeline_pkey.
-- Pages: 20
-- Returns: whether the rows were copied; null where there was no row that tells. The number is read before the mark is
--   drawn, which every transaction with a lower number has taken before: all of them have ended once the mark is below
--   the oldest one.
WITH wal AS MATERIALIZED (
    SELECT {timeline()} AS timeline,
        COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) AS head, {horizon()} AS oldest,
        (leasequeue_epoch() << {TXID_BITS}) + pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS newest,
        {copied()} AS copied
), marked AS MATERIALIZED (
    SELECT wal.*, {txid()} AS mark, leasequeue_system() AS system,
        CASE WHEN %(autocommit)s::bool THEN set_config('synchronous_commit', 'off', true) END
    FROM wal
    WHERE NOT COALESCE(wal.copied, NOT %(first)s::bool) AND NOT EXISTS (SELECT FROM leasequeue_timeline t
        WHERE t.timeline = wal.timeline AND t.sealed = wal.head AND wal.newest <= t.mark + 1)
), noted AS (
    INSERT INTO leasequeue_timeline AS t (timeline, head, mark, sealed, horizon, noted_at, system)
    SELECT timeline, head, mark, 0, oldest, {now()}, system FROM marked
    ON CONFLICT (timeline) DO UPDATE SET head = EXCLUDED.head, mark = EXCLUDED.mark, horizon = EXCLUDED.horizon,
        sealed = CASE WHEN t.mark < EXCLUDED.horizon THEN t.head ELSE t.sealed END, noted_at = EXCLUDED.noted_at
)
SELECT copied FROM wal

-- Purpose: note how far the server's timeline has come: what a standby that has this row cannot have lost. Nothing is written
--   while nothing happens. Its commit does not wait for the disk: a row that is lost takes nothing with it.
-- Parameters: now, autocommit.
-- Index: leasequeue_timeline_pkey.
-- Pages: 20
-- Returns: the timeline, if it was noted. The number is read before the mark is drawn, which every transaction with a lower
--   number has taken before: all of them have ended once the mark is below the oldest one.
WITH n AS MATERIALIZED (
    SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint AS timeline,
        COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) AS head,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest,
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS newest
), m AS MATERIALIZED (
    SELECT n.*, pg_current_xact_id()::text::bigint AS mark,
        CASE WHEN %(autocommit)s::bool THEN set_config('synchronous_commit', 'off', true) END
    FROM n
    WHERE NOT EXISTS (SELECT FROM leasequeue_timeline t
        WHERE t.timeline = n.timeline AND t.sealed = n.head AND n.newest <= t.mark + 1)
)
INSERT INTO leasequeue_timeline AS t (timeline, head, mark, sealed, horizon, noted_at)
SELECT m.timeline, m.head, m.mark, 0, m.oldest, {now()} FROM m
ON CONFLICT (timeline) DO UPDATE SET head = EXCLUDED.head, mark = EXCLUDED.mark, horizon = EXCLUDED.horizon,
    sealed = CASE WHEN t.mark < EXCLUDED.horizon THEN t.head ELSE t.sealed END, noted_at = EXCLUDED.noted_at
RETURNING t.timeline

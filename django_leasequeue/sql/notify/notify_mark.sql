-- Purpose: draw a mark, after notify_hold: once the oldest running transaction (notify_oldest) has reached it, every
--   transaction that tested the lock before it was held has ended. It is a transaction id of our own: a snapshot's xmax
--   is only one more than the last that ended, and transactions beyond it may be running.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_xact_id()::text::bigint

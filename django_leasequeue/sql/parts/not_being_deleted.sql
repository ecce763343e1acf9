-- not_being_deleted(): whether no session may be about to delete the queue of this row. Who deletes a queue locks its
-- row, which shows in xmax at once, and then waits for all who write jobs; what is older than pg_snapshot_xmin is past.
(xmax = 0
    OR (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - xmax::text::bigint) & 4294967295
        BETWEEN 1 AND 2147483647)

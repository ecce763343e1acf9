-- Purpose: note the job of a recurring task that was enqueued elsewhere; or why there is none, and when it is looked at
--   again.
-- Parameters: id, seq (or null), error (empty: it was enqueued), again_at (or null: at its next tick); now.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 30
UPDATE leasequeue_recurringtask SET last_error = %(error)s::text, last_seq = COALESCE(%(seq)s::bigint, last_seq),
    failed_at = CASE WHEN %(error)s::text <> '' THEN {now()} END,
        next_tick_at = COALESCE(%(again_at)s::timestamptz, next_tick_at)
WHERE id = %(id)s::bigint
RETURNING id

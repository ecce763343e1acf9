-- Purpose: a delayed job is due now. One that waits for its limit or workflow, or was cancelled with that, stays as it
--   is.
-- Parameters: seq, now.
-- Index: leasequeue_delayed_pkey.
-- Pages: 60
-- Returns: its queue's id; nothing if the job is not delayed (any more).
UPDATE leasequeue_delayed SET available_at = LEAST(available_at, {now()})
WHERE seq = %(seq)s::bigint AND available_at + interval '0' < {HELD} RETURNING queue_id

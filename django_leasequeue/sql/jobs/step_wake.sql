-- Purpose: jobs that wait for an event that was emitted while they went to wait are due now; while it is being emitted,
--   in a second.
-- Parameters: seqs, now.
-- Index: leasequeue_jobstep_waiting, leasequeue_emittedevent_pkey, leasequeue_delayed_pkey, in the function.
-- Pages: 60 + 20 a row
SELECT DISTINCT queue_id FROM leasequeue_wake(%(seqs)s::bigint[], %(now)s::timestamptz) AS w (queue_id)

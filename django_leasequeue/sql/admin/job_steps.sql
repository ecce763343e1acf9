-- Purpose: the steps of a job for its page, the first ones, in their order; values that are long are not sent.
-- Parameters: seq, size, bytes (of the longest value that is sent).
-- Index: leasequeue_jobstep_pkey.
-- Pages: 20 + 2 a row
-- Returns: name, done at, delivery, until, event (null: over, or none), whether it is over, value (JSON text; null: too long, or none yet),
--   bytes of the value.
SELECT s.name, s.done_at, s.delivery, s.until, s.event, s.value IS NOT NULL,
    CASE WHEN octet_length(s.value::text) <= %(bytes)s::int THEN s.value::text END, octet_length(s.value::text)
FROM leasequeue_jobstep s WHERE s.seq = %(seq)s::bigint ORDER BY s.number, s.name LIMIT %(size)s::int

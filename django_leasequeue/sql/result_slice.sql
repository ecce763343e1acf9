-- Purpose: one slice of a binary result: large ones are read piece by piece.
-- Parameters: seq, start (bytes before it), size (bytes at most), now.
-- Index: leasequeue_jobresult_pkey. The column is stored uncompressed outside of the row, so that only the pages of the
--   slice are read.
-- Returns: the bytes (empty behind the end); no row when the result is not there or its time is over.
SELECT substring(r.result_body FROM %(start)s::int + 1 FOR %(size)s::int) FROM leasequeue_jobresult r
WHERE r.seq = %(seq)s::bigint AND r.expires_at > COALESCE(%(now)s::timestamptz, clock_timestamp())

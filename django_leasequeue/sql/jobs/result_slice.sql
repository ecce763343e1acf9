-- Purpose: one slice of a binary result: large ones are read piece by piece.
-- Parameters: seq, start (bytes before it), size (bytes at most), now.
-- Index: leasequeue_jobresult_pkey. A large body is stored outside of the row: what does not compress is read only as
--   far as the slice goes, a compressed one from its beginning to the end of the slice. One slice is in memory at a
--   time.
-- Pages: 30
SELECT substring(r.result_body FROM %(start)s::int + 1 FOR %(size)s::int) FROM leasequeue_jobresult r
WHERE r.seq = %(seq)s::bigint AND r.expires_at > {now()}

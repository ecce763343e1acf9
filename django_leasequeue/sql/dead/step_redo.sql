-- Purpose: remove a step of these jobs and all later ones, so that they run again.
-- Parameters: seqs (at most 1,000), name.
-- Index: leasequeue_jobstep_pkey.
-- Pages: 100 + 8 a row
DELETE FROM leasequeue_jobstep WHERE ctid = ANY (ARRAY(
    SELECT a.ctid FROM unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT s.number FROM leasequeue_jobstep s
        WHERE s.seq = u.seq AND s.name = %(name)s::text OFFSET 0) f
    CROSS JOIN LATERAL (SELECT s.ctid, s.number FROM leasequeue_jobstep s WHERE s.seq = u.seq OFFSET 0) a
    WHERE a.number >= f.number)) RETURNING seq

-- Purpose: give objects to jobs, in the transaction that stores the jobs or their results. One that was not given to a
--   job for too long is being removed by now, and is not given any more.
-- Parameters: arrays of equal length: ids, seqs.
-- Index: leasequeue_largeobject_pkey.
-- Pages: 20 + 16 a row
UPDATE leasequeue_largeobject SET
    seq = (ARRAY(SELECT i.seq FROM unnest(%(ids)s::bigint[], %(seqs)s::bigint[]) AS i(id, seq) ORDER BY i.id))[
        width_bucket(id, ARRAY(SELECT i.id FROM unnest(%(ids)s::bigint[]) AS i(id) ORDER BY i.id))]
WHERE id = ANY (%(ids)s::bigint[]) AND (seq + 0) IS NULL
RETURNING id

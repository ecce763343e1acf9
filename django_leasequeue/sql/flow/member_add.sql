-- Purpose: the members of a workflow, of jobs that the same transaction has added.
-- Parameters: workflow (id), first (place of the first), on_failure (seq of the job that is no node of it, or null); arrays of equal
--   length: seqs, pendings (parents), tolerants, labels, parents, children (of seqs, as texts of arrays, null: none).
-- Index: leasequeue_job_pkey; inserts.
-- Pages: 30 + 12 a row
-- Returns: how many there are.
WITH made AS (
    INSERT INTO leasequeue_member (seq, queue_id, rank, taken, waits, workflow, state, pending, tolerant, place, label, parents, children)
    SELECT i.seq, j.queue_id, j.rank, false, false, CASE WHEN i.seq IS DISTINCT FROM %(on_failure)s::bigint THEN %(workflow)s::bigint END,
        0, i.pending, i.tolerant, %(first)s::int + i.n - 1, i.label, i.parents::bigint[], i.children::bigint[]
    FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(pendings)s::int[]), unnest(%(tolerants)s::bool[]),
        unnest(%(labels)s::text[]), unnest(%(parents)s::text[]), unnest(%(children)s::text[]))
        WITH ORDINALITY AS i(seq, pending, tolerant, label, parents, children, n)
    CROSS JOIN LATERAL (SELECT j.queue_id, j.rank FROM leasequeue_job j WHERE j.seq = i.seq OFFSET 0) j
    ORDER BY i.seq
    RETURNING seq
)
SELECT count(*) FROM made

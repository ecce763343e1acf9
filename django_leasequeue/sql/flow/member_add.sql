-- Purpose: the members of a workflow, of jobs that the same transaction has added.
-- Parameters: workflow (id), first (place of the first), on_failure (seq of the job that is no node of it, or null);
--   arrays of equal length: seqs, pendings (parents), tolerants, labels, parents, children (of seqs, as texts of
--   arrays, null: none); arrays that may be empty, where no member has such a value: failures (whether it starts only
--   if its parent fails), delays (ms), starts (times).
-- Index: leasequeue_job_pkey; inserts.
-- Pages: 30 + 12 a row
WITH made AS (
    INSERT INTO leasequeue_member (seq, queue_id, rank, taken, waits, workflow, state, pending, tolerant, place, label,
        task, parents, children, for_failure, delay_ms, not_before)
    SELECT i.seq, j.queue_id, j.rank, false, false,
        CASE WHEN i.seq IS DISTINCT FROM %(on_failure)s::bigint THEN %(workflow)s::bigint END, {member.OPEN}, i.pending,
        i.tolerant, %(first)s::int + i.n - 1, i.label, j.name, i.parents::bigint[], i.children::bigint[],
        COALESCE(i.for_failure, false), i.delay_ms, i.not_before
    FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(pendings)s::int[]), unnest(%(tolerants)s::bool[]),
        unnest(%(labels)s::text[]), unnest(%(parents)s::text[]), unnest(%(children)s::text[]),
        unnest(%(failures)s::bool[]), unnest(%(delays)s::bigint[]), unnest(%(starts)s::timestamptz[]))
        WITH ORDINALITY AS i(seq, pending, tolerant, label, parents, children, for_failure, delay_ms, not_before, n)
    CROSS JOIN LATERAL (SELECT j.queue_id, j.rank, j.name FROM leasequeue_job j WHERE j.seq = i.seq OFFSET 0) j
    ORDER BY i.seq
    RETURNING seq
)
SELECT count(*) FROM made

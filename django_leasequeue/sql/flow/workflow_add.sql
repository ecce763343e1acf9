-- Purpose: a workflow and its members, of jobs that the same transaction has added.
-- Parameters: uid, project, name, total, on_failure (seq, or null), now; arrays of equal length: seqs, pendings (parents), tolerants,
--   labels, parents, children (of seqs, as texts of arrays, null: none).
-- Index: leasequeue_job_pkey; inserts.
-- Pages: 30 + 12 a row
-- Returns: the workflow's id.
WITH w AS (
    INSERT INTO leasequeue_workflow (uid, project, name, state, total, completed, failed, cancelled, on_failure, created_at)
    VALUES (%(uid)s::uuid, %(project)s::text, %(name)s::text, 0, %(total)s::int, 0, 0, 0, %(on_failure)s::bigint,
        COALESCE(%(now)s::timestamptz, clock_timestamp()))
    RETURNING id
), made AS (
    INSERT INTO leasequeue_member (seq, queue_id, rank, taken, waits, workflow, state, pending, tolerant, place, label, parents, children)
    SELECT i.seq, j.queue_id, j.rank, false, false, CASE WHEN i.seq IS DISTINCT FROM %(on_failure)s::bigint THEN w.id END, 0, i.pending,
        i.tolerant, i.n - 1, i.label, i.parents::bigint[], i.children::bigint[]
    FROM w, ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(pendings)s::int[]), unnest(%(tolerants)s::bool[]),
        unnest(%(labels)s::text[]), unnest(%(parents)s::text[]), unnest(%(children)s::text[]))
        WITH ORDINALITY AS i(seq, pending, tolerant, label, parents, children, n)
    CROSS JOIN LATERAL (SELECT j.queue_id, j.rank FROM leasequeue_job j WHERE j.seq = i.seq OFFSET 0) j
    ORDER BY i.seq
)
SELECT id FROM w

-- Purpose: note in the lease log which workflow jobs belong to, and what each of them comes after: a row for each queue
--   and task name, of at most 1,000 jobs. The members are there already.
-- Parameters: workflow (id), seqs (its jobs that were added, or that come after more than before), now.
-- Index: leasequeue_workflow_pkey, leasequeue_member_pkey, leasequeue_job_pkey; inserts.
-- Pages: 30 + 12 a row
WITH workflow AS MATERIALIZED (
    SELECT w.uid, w.name, {now()} AS now, {txid()} AS txid
    FROM leasequeue_workflow w WHERE w.id = %(workflow)s::bigint
), members AS MATERIALIZED (
    SELECT m.seq, m.queue_id, j.name, m.label, m.tolerant, COALESCE(to_jsonb(m.parents), '[]') AS parents,
        row_number() OVER (PARTITION BY m.queue_id, j.name ORDER BY m.seq) AS n
    FROM unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_member m WHERE m.seq = u.seq OFFSET 0) m
    CROSS JOIN LATERAL (SELECT j.name FROM leasequeue_job j WHERE j.seq = m.seq OFFSET 0) j
    WHERE m.workflow = %(workflow)s::bigint
)
INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
SELECT workflow.txid, workflow.now, members.queue_id, min(members.seq), max(members.seq), {event.LINKED}, members.name,
    array_agg(members.seq ORDER BY members.n),
    jsonb_build_object('workflow', workflow.uid, 'name', workflow.name, 'parents',
        jsonb_agg(members.parents ORDER BY members.n))
        || CASE WHEN bool_or(members.label <> '') THEN jsonb_build_object('labels',
            jsonb_agg(members.label ORDER BY members.n)) ELSE '{}' END
        || CASE WHEN bool_or(members.tolerant) THEN jsonb_build_object('tolerant',
            jsonb_agg(members.tolerant ORDER BY members.n)) ELSE '{}' END
FROM workflow, members GROUP BY workflow.txid, workflow.now, workflow.uid, workflow.name, members.queue_id,
    members.name, (members.n - 1) / 1000
RETURNING cardinality(seqs)

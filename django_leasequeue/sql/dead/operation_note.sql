-- Purpose: write down what a batch of a bulk operation did, in the transaction of the batch; its end goes into the audit.
-- Parameters: id, state, looked_at, done, conflicts (numbers to add), conflict_counts (all of them, JSON), conflict_sample (to
--   add, JSON), cursor (JSON), paced_at, error, now.
-- Index: leasequeue_bulkoperation_pkey.
-- Pages: 60
-- Returns: id.
WITH t AS MATERIALIZED (SELECT {now()} AS now), o AS (
    UPDATE leasequeue_bulkoperation o SET state = %(state)s::text, looked_at = o.looked_at + %(looked_at)s::bigint,
        done = o.done + %(done)s::bigint, conflicts = o.conflicts + %(conflicts)s::bigint,
        conflict_counts = %(conflict_counts)s::text::jsonb,
        conflict_sample = o.conflict_sample || %(conflict_sample)s::text::jsonb, cursor = %(cursor)s::text::jsonb,
        paced_at = %(paced_at)s::timestamptz, started_at = COALESCE(o.started_at, t.now), changed_at = t.now,
        finished_at = CASE WHEN %(state)s::text IN ('done', 'failed') THEN t.now END, error = %(error)s::text
    FROM t WHERE o.id = %(id)s::bigint
    RETURNING o.*
), audit AS (
    INSERT INTO leasequeue_operatoraction (at, user_id, username, source, action, project, queue, seqs, filters, counts, reason,
        detail, operation_id)
    SELECT o.finished_at, o.user_id, o.username, 'reaper', o.kind || '.' || o.state, COALESCE(o.project, ''),
        COALESCE(o.queue, ''), '{}', o.filters,
        jsonb_build_object('done', o.done, 'conflicts', o.conflicts, 'looked_at', o.looked_at), o.reason,
        CASE WHEN o.error = '' THEN '{}' ELSE jsonb_build_object('error', o.error) END, o.id
    FROM o WHERE o.finished_at IS NOT NULL
)
SELECT id FROM o

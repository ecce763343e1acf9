-- Purpose: record the outcome of a batch of a bulk operation, in the transaction of the batch; its end goes into the
--   audit.
-- Parameters: id, state, looked_at, done, conflicts (numbers to add), conflict_counts (all of them, JSON),
--   conflict_sample (to add, JSON), cursor (JSON), paced_at, error, now.
-- Index: leasequeue_bulkoperation_pkey.
-- Pages: 60
WITH clock AS MATERIALIZED (SELECT {now()} AS now), operation AS (
    UPDATE leasequeue_bulkoperation o SET state = %(state)s::text, looked_at = o.looked_at + %(looked_at)s::bigint,
        done = o.done + %(done)s::bigint, conflicts = o.conflicts + %(conflicts)s::bigint,
        conflict_counts = %(conflict_counts)s::text::jsonb,
        conflict_sample = o.conflict_sample || %(conflict_sample)s::text::jsonb, cursor = %(cursor)s::text::jsonb,
        paced_at = %(paced_at)s::timestamptz, started_at = COALESCE(o.started_at, clock.now), changed_at = clock.now,
        finished_at = CASE WHEN %(state)s::text IN ('done', 'failed') THEN clock.now END, error = %(error)s::text
    FROM clock WHERE o.id = %(id)s::bigint
    RETURNING o.*
), audit AS (
    INSERT INTO leasequeue_operatoraction (at, user_id, username, source, action, project, queue, seqs, filters, counts,
        reason, detail, operation_id)
    SELECT finished_at, user_id, username, 'reaper', kind || '.' || state, COALESCE(project, ''), COALESCE(queue, ''),
        '{}', filters, jsonb_build_object('done', done, 'conflicts', conflicts, 'looked_at', looked_at), reason,
        CASE WHEN error = '' THEN '{}' ELSE jsonb_build_object('error', error) END, id
    FROM operation WHERE finished_at IS NOT NULL
)
SELECT id FROM operation

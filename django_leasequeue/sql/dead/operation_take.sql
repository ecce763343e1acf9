-- Purpose: lock one bulk operation during a batch; pause and cancel wait for its end.
-- Parameters: id, size (numbers of a selection that are wanted), now.
-- Index: leasequeue_bulkoperation_pkey.
-- Pages: 30
-- Returns: nothing where it is not active, or another reaper has it.
SELECT o.id, o.kind, o.state, o.project, o.queue, o.filters, COALESCE(cardinality(o.seqs), 0) AS selected,
    CASE WHEN o.seqs IS NULL THEN NULL
        ELSE o.seqs[COALESCE((o.cursor ->> 0)::int, 0) + 1 : COALESCE((o.cursor ->> 0)::int,
            0) + %(size)s::int] END::text,
    o.cursor::text, o.frozen_at, o.target, o.rate, o.jitter_ms, o.reason, o.username, o.paced_at,
    o.conflict_counts::text, jsonb_array_length(o.conflict_sample) AS conflicts_kept, {now()} AS now, o.from_step
FROM leasequeue_bulkoperation o WHERE o.id = %(id)s::bigint AND o.state IN ('pending', 'running')
FOR UPDATE OF o SKIP LOCKED

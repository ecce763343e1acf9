-- Purpose: what happened to one job, the newest events first.
-- Parameters: seq, size.
-- Index: leasequeue_event_seqs and leasequeue_event_occurred (BRIN) of each partition, within the job's own times where it is known;
--   ordered by transaction.
-- Pages: 20 + 6 a row
-- Host: as upkeep/plans.sql set the planner: BRIN needs bitmaps.
-- Returns: id, occurred_at, kind, queue id, node, deliveries, claim, deadline, waited, ran (ms), name, detail
--   (of linked: its workflow, and how many jobs it comes after).
WITH t AS MATERIALIZED (
    SELECT COALESCE((SELECT created_at - interval '1 minute' FROM leasequeue_job WHERE seq = %(seq)s::bigint), '-infinity') AS low,
        COALESCE((SELECT finished_at + interval '1 minute' FROM leasequeue_jobresult WHERE seq = %(seq)s::bigint), 'infinity') AS high
), e AS MATERIALIZED (
    SELECT e.*, array_position(e.seqs, %(seq)s::bigint) AS n FROM leasequeue_leaseevent e
    WHERE e.low <= %(seq)s::bigint AND e.high >= %(seq)s::bigint AND %(seq)s::bigint = ANY (e.seqs)
        AND e.occurred_at >= (SELECT low FROM t) AND e.occurred_at <= (SELECT high FROM t)
)
SELECT id * 1024 + n - 1, occurred_at, kind::int, queue_id, node,
    CASE WHEN kind NOT IN (1, 9, 11) THEN COALESCE(deliveries[n], 1) END, claim, deadline, waited[n], ran[n], name,
    CASE WHEN kind <> 11 THEN detail ELSE jsonb_build_object('workflow', detail -> 'workflow', 'name', detail -> 'name',
        'parents', jsonb_array_length(detail -> 'parents' -> (n - 1))) END::text
FROM e ORDER BY txid DESC, id DESC LIMIT %(size)s::int

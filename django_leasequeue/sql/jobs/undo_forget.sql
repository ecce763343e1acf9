-- Purpose: forget the steps of a leased job that are undone, and what was kept after the first of them: they run again.
-- Parameters: seq, token, node, now.
-- Index: leasequeue_jobstep_pkey, leasequeue_job_pkey; leasequeue_claim_pkey, leasequeue_queue_pkey, in the function.
-- Pages: 60 + 8 a row
WITH known AS MATERIALIZED (
    SELECT s.ctid AS place, s.number, s.name, s.undo, s.value::text AS value FROM leasequeue_jobstep s
    WHERE s.seq = %(seq)s::bigint
), note AS MATERIALIZED (
    SELECT (known.value::json ->> 'own')::int AS own FROM known WHERE known.name = '$undo'
        AND leasequeue_holds(%(seq)s::bigint, %(token)s::bigint, %(node)s::text, %(now)s::timestamptz, false)
), gone AS (
    DELETE FROM leasequeue_jobstep WHERE ctid = ANY (ARRAY(
        SELECT known.place FROM known WHERE known.name = '$undo'
            OR known.number >= (SELECT min(first.number) FROM known first WHERE first.undo IS NOT NULL)))
        AND EXISTS (SELECT FROM note)
)
UPDATE leasequeue_job SET max_deliveries = (SELECT own FROM note)
WHERE seq = ANY (ARRAY(SELECT %(seq)s::bigint FROM note)) RETURNING true

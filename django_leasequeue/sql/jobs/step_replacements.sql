-- Purpose: the replacements of jobs: calls and workflows that end for them.
-- Parameters: seqs.
-- Index: leasequeue_jobstep_pkey.
-- Pages: 20 + 8 a row
-- Returns: what has replaced each of those that were replaced (JSON text, see tasks/context.py).
SELECT s.value FROM unnest(%(seqs)s::bigint[]) AS u(seq) CROSS JOIN LATERAL (
    SELECT s.value::text AS value FROM leasequeue_jobstep s WHERE s.seq = u.seq AND s.name = '$replaced' OFFSET 0) s

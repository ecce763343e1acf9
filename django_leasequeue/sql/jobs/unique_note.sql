-- Purpose: note which jobs have the keys that unique_take locked, and for how long.
-- Parameters: queue (id); arrays of equal length: keys (each once), seqs, spans (ms for which the key holds; null: as
--   long as the job says), starts (1: until its job starts); now.
-- Index: leasequeue_uniquekey_pkey.
-- Pages: 50 + 12 a row
{keeps_host_settings(inserts only: no plan reads more)}
INSERT INTO leasequeue_uniquekey AS u (queue_id, key, seq, free_at, until_start)
SELECT %(queue)s::bigint, k.key, k.seq, {now()} + k.span * interval '1 ms', k.start = 1
FROM ROWS FROM (unnest(%(keys)s::text[]), unnest(%(seqs)s::bigint[]), unnest(%(spans)s::bigint[]),
    unnest(%(starts)s::int[]))
    AS k(key, seq, span, start)
ON CONFLICT (queue_id, key) DO UPDATE SET seq = excluded.seq, free_at = excluded.free_at,
    until_start = excluded.until_start
RETURNING u.key

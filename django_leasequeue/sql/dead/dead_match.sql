-- Purpose: the dead letters of a list that match a filter, in the list's order.
-- Parameters: seqs; task, tag, least, most (deliveries), text (a part of the error, its type, the task, or the key, in
--   any case), each null: any; of tests of the payload, arrays of one length: roots (data or meta), paths (text of a
--   text[]), equal (wanted or not), jsons (the value as JSON), words (the value as text; null: only as JSON).
-- Index: leasequeue_deadletter_pkey, leasequeue_job_pkey.
-- Pages: 20 + 10 a row
SELECT d.seq, d.queue_id, j.name, d.fingerprint, d.dead_at, d.error_type
FROM unnest(%(seqs)s::bigint[]) WITH ORDINALITY AS u(seq, ord)
CROSS JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = u.seq OFFSET 0) d
CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0) j
WHERE (%(task)s::text IS NULL OR j.name = %(task)s::text)
    AND (%(tag)s::text IS NULL OR j.tag = %(tag)s::text)
    AND d.deliveries BETWEEN COALESCE(%(least)s::int, 0) AND COALESCE(%(most)s::int, 2147483647)
    AND (%(text)s::text IS NULL OR strpos(lower(concat_ws(chr(10), d.error_type, d.error, j.name, j.key)),
        lower(%(text)s::text)) > 0)
    AND (%(paths)s::text[] = '{}' OR NOT EXISTS (
        SELECT FROM ROWS FROM (unnest(%(roots)s::text[]), unnest(%(paths)s::text[]), unnest(%(equal)s::bool[]),
            unnest(%(jsons)s::text[]), unnest(%(words)s::text[])) AS p(root, path, equal, json, word)
        CROSS JOIN LATERAL (SELECT leasequeue_jsonb(CASE p.root WHEN 'meta' THEN j.meta
            ELSE j.data END) AS doc OFFSET 0) d
        WHERE p.equal IS DISTINCT FROM (COALESCE(d.doc #> p.path::text[] = p.json::jsonb, false)
            OR COALESCE(d.doc #>> p.path::text[] = p.word, false))))
ORDER BY u.ord

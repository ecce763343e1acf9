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
    AND {payload_tests((SELECT j.data, j.meta) k)}
ORDER BY u.ord
